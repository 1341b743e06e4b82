"""The pictures of several cards move every sum to every card, and shards add up to the whole."""

import pytest
from figure_checks import collisions

from course.lesson20.pictures import ring_scheme, ring_states, sharding_scheme


def test_every_card_of_a_ring_ends_with_every_sum():
    for cards in range(2, 9):
        states = ring_states(cards)
        assert len(states) == 2 * (cards - 1) + 1
        for before, after in zip(states, states[1:], strict=False):
            changes = [sum(a != b for a, b in zip(*held, strict=True)) for held in zip(before, after, strict=True)]
            assert changes == [1] * cards  # a card receives one part a step
        whole = [[count == cards for count in held] for held in states[cards - 1]]
        assert [sum(held) for held in whole] == [1] * cards == [sum(part) for part in zip(*whole, strict=True)]
        assert states[-1] == [[cards] * cards] * cards
    for refused in (1, 9):
        with pytest.raises(ValueError, match=f"cards={refused}: expected 2 to 8"):
            ring_scheme(refused)
    assert "each card sends 1.75 times" in ring_scheme(8).finding


def test_the_shards_of_all_cards_together_are_the_whole():
    chart = sharding_scheme(4, 1_000_000_000)
    boxes = [patch for patch in chart.axes[0].patches if type(patch).__name__ == "Rectangle"]
    outlines, filled = boxes[::2], boxes[1::2]
    whole = sum(box.get_width() for box in filled[:12])  # DDP: three kinds on each of four cards
    assert sum(box.get_width() for box in filled[12:]) == pytest.approx(whole / 4)
    assert whole == pytest.approx(sum(box.get_width() for box in outlines[:12]))
    assert chart.finding.startswith("FSDP leaves each of 4 cards 3.73 GiB of the 14.9 GiB")


@pytest.mark.parametrize("cards", [2, 8])
def test_no_text_lies_over_another(cards):
    assert collisions(ring_scheme(cards)) == [] == collisions(sharding_scheme(cards))
