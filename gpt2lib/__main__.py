"""``python -m gpt2lib`` is the same as ``gpt2lib``."""

import sys

from gpt2lib.cli import main

if __name__ == "__main__":
    sys.exit(main())
