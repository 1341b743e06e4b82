"""Record what a training step needs for each point of the grid that the live demo's sliders move on.

    python data/build/record_memory_grid.py

Each is an estimate of `tlkit.estimate_memory`, made on tensors that have no contents; together they take about twenty
minutes on one core. A test compares some of them with estimates made anew.
"""

import pandas as pd
from described_table import write_described

import tlkit as tl
from tlkit.fitting.grid import BATCH_SIZE, RECORDED, SEQUENCE_LENGTH, grid_points, grid_row


def main() -> None:
    tl.setup()
    points, rows = grid_points(), []
    with tl.Job(len(points), "estimate") as job:
        for point in points:
            with job.part(f"{point.model} {point.strategy}"):
                rows.append(grid_row(point, point.estimate()))
    RECORDED.parent.mkdir(exist_ok=True)
    write_described(
        pd.DataFrame(rows),
        RECORDED,
        "python data/build/record_memory_grid.py",
        step=f"{BATCH_SIZE} rows of {SEQUENCE_LENGTH} tokens, AdamW, not the first",
        unit="bytes at the peak",
    )


if __name__ == "__main__":
    main()
