"""Entry point of `python -m tlkit`."""

import sys

from tlkit.cli import main

sys.exit(main())
