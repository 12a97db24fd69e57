"""The commands of ``gpt2lib``, one module each; see :mod:`gpt2lib.cli`."""
