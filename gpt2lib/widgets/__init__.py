"""What the reader turns in a running notebook; in the rendered page each is a finished figure.

:func:`controls` joins sliders, switches and menus to a function that draws a figure.
"""

from gpt2lib.widgets._controls import Controls, controls

__all__ = ["Controls", "controls"]
