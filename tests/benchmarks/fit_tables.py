"""Which strategy fits which card, for the presets: `python tests/benchmarks/fit_tables.py`, about two minutes.

Writes `fit_tables.csv` beside this file, from estimates alone. Lesson 12 reads it.
"""

from pathlib import Path

import pandas as pd
import torch

from tlkit.fitting.recommendation import fit_table
from tlkit.models import distinct_architectures
from tlkit.settings import setup

setup()
tables = [fit_table(model).assign(model=model) for model in distinct_architectures()]
record = pd.concat(tables, ignore_index=True).assign(torch=torch.__version__.split("+")[0])
record.insert(0, "model", record.pop("model"))
record.to_csv(Path(__file__).with_suffix(".csv"), index=False)
print(record.to_string())
