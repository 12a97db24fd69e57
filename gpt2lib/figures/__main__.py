"""Write the palette as CSS: ``python -m gpt2lib.figures > book/_static/palette.css``."""

from gpt2lib.figures._style import stylesheet

print(stylesheet(), end="")
