"""``python -m skultr``: the command ``skultr``."""

import sys

from .command._run import main

if __name__ == "__main__":
    sys.exit(main())
