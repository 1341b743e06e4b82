"""Labels move as little as they must, and sentences claim as much as they may."""

import pytest
from figure_checks import collisions
from hypothesis import given
from hypothesis import strategies as st

from tlkit.reports.figure import INK, new_figure
from tlkit.reports.findings import listed, number, short
from tlkit.reports.labels import label_ends, spread

PLACES = st.lists(st.floats(0, 1), min_size=1, max_size=12).map(sorted)


@given(PLACES, st.floats(0.01, 0.2))
def test_spread_places_are_apart_and_in_order(places, gap):
    found = spread(places, gap)
    assert len(found) == len(places)
    assert all(after - before >= gap - 1e-9 for before, after in zip(found, found[1:], strict=False))
    assert sum(found) == pytest.approx(sum(places))  # neighbours keep their middle


@pytest.mark.parametrize("apart", [1.0, 0.05, 0.0])
def test_names_at_the_ends_of_lines_do_not_collide(apart):
    figure, axes = new_figure()
    ends = {f"strategy {place}": (1.0 - place / 20, 0.5 + apart * (place - 4) / 9) for place in range(9)}
    axes.set(xlim=(0, 1), ylim=(0, 1))
    label_ends(axes, ends, dict.fromkeys(ends, INK))
    assert collisions(figure) == []
    texts = {text.get_text(): text.get_position()[1] for text in axes.texts if text.get_text()}
    assert list(texts) == list(ends) and (apart == 0 or sorted(texts.values()) == list(texts.values()))
    assert [leader.xy for leader in axes.texts if not leader.get_text()] == [ends[name] for name in sorted(ends)]


def test_numbers_are_written_as_people_say_them():
    values = (0.0123, 4.6, 72.28, 126.2, 4096, 4_036_800, 6_738_415_616)
    assert [number(value) for value in values] == [
        "0.0123",
        "4.6",
        "72.3",
        "126",
        "4,096",
        "4.04 million",
        "6.74 billion",
    ]
    brief = [short(value) for value in (0, 384, 27_648, 999_999, 4_036_800, 7e9)]
    assert brief == ["0", "384", "27.6k", "1M", "4.04M", "7B"]


def test_a_few_are_named_and_many_are_counted():
    assert [listed("abcd"[:count]) for count in range(5)] == ["", "a", "a and b", "a, b and c", "4 others"]
