"""`python -m ottla` is `ottla`: for environments whose scripts are not on the path."""

from __future__ import annotations

import sys

from ottla.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
