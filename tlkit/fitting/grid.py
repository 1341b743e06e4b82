"""Estimates that were made before, so that a slider answers at once: what a step needs, and what would make it fit."""

import functools
import io
from dataclasses import asdict, dataclass, fields
from itertools import product, takewhile
from pathlib import Path

import pandas as pd

from tlkit.fitting.estimate import CATEGORIES, MemoryEstimate, estimate_memory
from tlkit.memory import in_units
from tlkit.names import CARD_SHARE
from tlkit.settings import DATA, Plan

RECORDED = DATA / "memory" / "grid.csv"  # made by data/build/record_memory_grid.py
BATCH_SIZE, SEQUENCE_LENGTH = 8, 512  # rows and tokens of every step of the grid
CHOICES = {
    "model": ("smollm2-135m", "qwen2-0.5b", "tinyllama-1.1b", "llama2-7b"),
    "strategy": ("full", "last_layers", "lora", "qlora"),  # from the most thorough to the most frugal
    "dtype": ("fp32", "bf16"),
    "micro_batch_size": (8, 2, 1),
    "activation_checkpointing": (False, True),
    "chunked_loss": (False, True),
}


@dataclass(frozen=True)
class GridPoint:
    """One way to carry out a training step of `BATCH_SIZE` rows of `SEQUENCE_LENGTH` tokens with AdamW.

    Attributes:
        model: a preset.
        strategy: what is trained.
        dtype: of the weights.
        micro_batch_size: rows in one forward pass.
        activation_checkpointing: whether activations are computed again in the backward pass.
        chunked_loss: whether head and loss are computed for a few tokens at a time.
    """

    model: str
    strategy: str
    dtype: str = "fp32"
    micro_batch_size: int = BATCH_SIZE
    activation_checkpointing: bool = False
    chunked_loss: bool = False

    def estimate(self) -> MemoryEstimate:
        """Estimate this step anew, which takes about a second."""
        whole = self.micro_batch_size == BATCH_SIZE
        plan = Plan(
            micro_batch_size=None if whole else self.micro_batch_size,
            activation_checkpointing=self.activation_checkpointing,
            chunked_loss=self.chunked_loss,
        )
        shape = {"batch_size": BATCH_SIZE, "sequence_length": SEQUENCE_LENGTH}
        return estimate_memory(self.model, self.strategy, dtype=self.dtype, plan=plan, **shape)


def grid_points() -> list[GridPoint]:
    """List every point of the grid, in the order of `CHOICES`."""
    return [GridPoint(*values) for values in product(*CHOICES.values())]


@functools.cache
def memory_grid(path: Path = RECORDED) -> dict[GridPoint, MemoryEstimate]:
    """Read the estimates that were recorded for each point.

    Args:
        path: of the table.

    Raises:
        ValueError: where a point of the grid is missing.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    comment = sum(1 for _ in takewhile(lambda line: line.startswith("# "), lines))
    table = pd.read_csv(io.StringIO("".join(lines[comment:])))
    names = [field.name for field in fields(GridPoint)]
    found = {}
    for row in table.to_dict("records"):
        categories = {name: int(row[name]) for name in CATEGORIES}
        peak = {str(row["phase"]): sum(categories.values())}
        found[GridPoint(**{name: row[name] for name in names})] = MemoryEstimate(categories, peak)
    if missing := [point for point in grid_points() if point not in found]:
        raise ValueError(f"{path} has no {missing[0]}: record it anew, python data/build/record_memory_grid.py")
    return found


def grid_row(point: GridPoint, estimate: MemoryEstimate) -> dict[str, object]:
    """A row of the recorded table.

    Args:
        point: of the grid.
        estimate: what was found for it.
    """
    return {**asdict(point), "phase": estimate.phase, **estimate.categories}


def way_to_fit(point: GridPoint, budget: int, grid: dict[GridPoint, MemoryEstimate] | None = None) -> GridPoint | None:
    """Find the change that costs least and makes a step fit: of the plan, then of the precision, then of the strategy.

    Args:
        point: what was asked for.
        budget: bytes of the card, of which 15% are left to its driver.
        grid: of estimates, by default the recorded one.

    Returns:
        The same point where it fits already; None where no point with this model does.
    """
    grid = memory_grid() if grid is None else grid
    order = CHOICES["strategy"].index

    def cost(other: GridPoint) -> tuple:
        """Changed strategy, changed precision, switches that are turned on, and how small the micro-batches are."""
        turned_on = other.activation_checkpointing - point.activation_checkpointing
        turned_on += other.chunked_loss - point.chunked_loss
        smaller = other.micro_batch_size < point.micro_batch_size
        further = order(other.strategy) - order(point.strategy)
        return further, other.dtype != point.dtype, turned_on + smaller, -other.micro_batch_size

    def within(other: GridPoint) -> bool:
        """Nothing that was chosen to save memory is taken back."""
        return (
            other.model == point.model
            and order(other.strategy) >= order(point.strategy)
            and other.dtype in (point.dtype, "bf16")
            and other.micro_batch_size <= point.micro_batch_size
            and other.activation_checkpointing >= point.activation_checkpointing
            and other.chunked_loss >= point.chunked_loss
        )

    fitting = [other for other in grid if within(other) and grid[other].peak <= CARD_SHARE * budget]
    return min(fitting, key=cost, default=None)


def in_words(point: GridPoint, budget: int, grid: dict[GridPoint, MemoryEstimate] | None = None) -> tuple[str, str]:
    """Say whether a step fits a card, and what to change where it does not.

    Args:
        point: what was asked for.
        budget: bytes of the card.
        grid: of estimates, by default the recorded one.

    Returns:
        The verdict, and what follows from it.
    """
    grid = memory_grid() if grid is None else grid
    estimate, usable = grid[point], int(CARD_SHARE * budget)
    largest = max(estimate.categories, key=estimate.categories.get)
    share = f"{100 * estimate.categories[largest] / estimate.peak:.0f}% of it {largest}"
    needs = f"{in_units(estimate.peak)} needed, {share}"
    if estimate.peak <= usable:
        return f"It fits: {needs}.", f"{in_units(usable - estimate.peak)} of the usable {in_units(usable)} are left."
    verdict = f"It does not fit: {needs}; {in_units(usable)} are usable."
    way = way_to_fit(point, budget, grid)
    if way is None:
        return verdict, "No setting on this page makes it fit: take a smaller model, a larger card or several cards."
    changes = _changes(point, way)
    same = (point.strategy, point.dtype) == (way.strategy, way.dtype)
    kept = "The result of the step stays the same." if same else "This changes what is computed."
    return verdict, f"It would fit with {changes}: {in_units(grid[way].peak)}. {kept}"


def _changes(point: GridPoint, way: GridPoint) -> str:
    """The differences of two points, as a sentence lists them."""
    found = []
    if way.strategy != point.strategy:
        found.append(f"{way.strategy} instead of {point.strategy}")
    if way.dtype != point.dtype:
        found.append(f"weights in {way.dtype}")
    if way.micro_batch_size != point.micro_batch_size:
        found.append(f"micro-batches of {way.micro_batch_size}")
    if way.activation_checkpointing > point.activation_checkpointing:
        found.append("activation checkpointing")
    if way.chunked_loss > point.chunked_loss:
        found.append("chunked loss")
    return " and ".join(filter(None, [", ".join(found[:-1]), found[-1]]))
