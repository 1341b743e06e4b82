"""Entry point of `python -m tlkit`."""

import sys

from tlkit.cli import main

sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that lacks a character shows its number
sys.exit(main())
