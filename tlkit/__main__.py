"""Entry point of `python -m tlkit`."""

import os
import sys

from tlkit.cli import main

if sys.stdout is None:  # closed by who started this
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that lacks a character shows its number
sys.exit(main())
