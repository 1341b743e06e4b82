"""The recorded grid: it is what `estimate_memory` says, and what it proposes fits and takes nothing back."""

from dataclasses import replace

import pytest

from tlkit.fitting.estimate import CATEGORIES, MemoryEstimate
from tlkit.fitting.grid import CHOICES, GridPoint, grid_points, in_words, memory_grid, way_to_fit
from tlkit.names import CARD_SHARE

GIB = 2**30
SAMPLED = (
    GridPoint("smollm2-135m", "full", "fp32", 8, False, True),
    GridPoint("qwen2-0.5b", "lora", "bf16", 8, False, False),
    GridPoint("tinyllama-1.1b", "qlora", "fp32", 8, False, True),
    GridPoint("llama2-7b", "last_layers", "bf16", 1, True, False),
)


@pytest.mark.parametrize("point", SAMPLED, ids=lambda point: f"{point.model}-{point.strategy}")
def test_the_grid_is_what_is_estimated_anew(point):
    recorded, anew = memory_grid()[point], point.estimate()
    assert recorded.categories == anew.categories and recorded.phase == anew.phase


def test_every_point_is_there_and_a_missing_one_is_named(tmp_path):
    assert set(memory_grid()) == set(grid_points()) and len(grid_points()) == 384
    from tlkit.fitting.grid import RECORDED

    lines = RECORDED.read_text(encoding="utf-8").splitlines(keepends=True)
    short = tmp_path / "grid.csv"
    short.write_text("".join(lines[:-1]))
    with pytest.raises(ValueError, match="has no GridPoint.*llama2-7b.*record it anew"):
        memory_grid(short)


@pytest.mark.parametrize("gigabytes", [4, 8, 24])
def test_a_proposal_fits_and_keeps_what_was_chosen(gigabytes):
    grid, order = memory_grid(), CHOICES["strategy"].index
    for point in grid:
        way = way_to_fit(point, gigabytes * GIB)
        if way is None:
            continue
        assert grid[way].peak <= CARD_SHARE * gigabytes * GIB and way.model == point.model
        assert order(way.strategy) >= order(point.strategy) and way.micro_batch_size <= point.micro_batch_size
        assert way.activation_checkpointing >= point.activation_checkpointing
        assert (way == point) == (grid[point].peak <= CARD_SHARE * gigabytes * GIB)


def planted(sizes: dict[GridPoint, float]) -> dict[GridPoint, MemoryEstimate]:
    """A grid with peaks as given, in GiB."""
    return {
        point: MemoryEstimate(dict.fromkeys(CATEGORIES, 0) | {"weights": int(size * GIB)}, {"backward pass": 1})
        for point, size in sizes.items()
    }


def test_the_cheapest_change_is_proposed_the_plan_before_precision_before_strategy():
    asked = GridPoint("qwen2-0.5b", "full")
    plan, precision = replace(asked, activation_checkpointing=True), replace(asked, dtype="bf16")
    strategy = replace(asked, strategy="lora")
    grid = planted({asked: 9, plan: 5, precision: 4, strategy: 1})
    assert way_to_fit(asked, 8 * GIB, grid) == plan
    assert in_words(asked, 8 * GIB, grid)[1] == (
        "It would fit with activation checkpointing: 5.00 GiB. The result of the step stays the same."
    )
    grid = planted({asked: 9, plan: 8, precision: 4, strategy: 1})
    assert way_to_fit(asked, 8 * GIB, grid) == precision
    assert in_words(asked, 8 * GIB, grid)[1].endswith("This changes what is computed.")
    grid = planted({asked: 9, plan: 8, precision: 7, strategy: 1})
    assert way_to_fit(asked, 8 * GIB, grid) == strategy
    assert "lora instead of full" in in_words(asked, 8 * GIB, grid)[1]
    grid = planted({asked: 9, plan: 8, precision: 7, strategy: 6.9})
    assert way_to_fit(asked, 8 * GIB, grid) is None
    assert in_words(asked, 8 * GIB, grid)[1].startswith("No setting on this page")


def test_the_limit_is_the_usable_share_of_the_card():
    asked = GridPoint("qwen2-0.5b", "full")
    assert in_words(asked, 8 * GIB, planted({asked: 6.79}))[0].startswith("It fits: 6.79 GiB needed")
    assert in_words(asked, 8 * GIB, planted({asked: 6.81}))[0].startswith("It does not fit: 6.81 GiB needed")
