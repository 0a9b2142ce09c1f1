"""``python -m marketdata.cli``."""

from __future__ import annotations

import sys

from marketdata.cli import main

if __name__ == "__main__":
    sys.exit(main())
