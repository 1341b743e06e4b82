"""What the pictures of a leaderboard say is what the audit has found, and no text lies over another."""

import pytest
from figure_checks import collisions, struck

from course.lesson16.leaderboards import leaderboard
from course.lesson16.pictures import apart_chart, scores_chart, standings_chart
from tlkit.evidence.audit import audit
from tlkit.evidence.fronts import front_shares
from tlkit.reports.fronts import front_chart

BOARD = leaderboard()
AUDIT = audit(BOARD, "test_accuracy", 1319, name="name")


def test_scores_are_drawn_in_their_order_with_what_the_first_interval_holds():
    assert standings_chart(BOARD.test_accuracy).finding == "The first 10 of 63 lie between 52.6% and 49.1%"
    chart = scores_chart(AUDIT.table)
    assert chart.finding == "The interval of the first row holds the scores of 6 of the other 9"
    assert collisions(chart) == [] == collisions(standings_chart(BOARD.test_accuracy))


def test_every_pair_has_a_colour():
    chart = apart_chart(AUDIT)
    beside = sum(
        AUDIT.pairs.set_index(["first", "second"]).separated[pair]
        for pair in zip(AUDIT.table.name[:-1], AUDIT.table.name[1:], strict=True)
    )
    assert chart.finding == f"1,194 of 1,953 pairs can be told apart, but only {beside} of 62 neighbours"
    picture = chart.axes[0].images[0].get_array()
    assert (picture == picture.transpose(1, 0, 2)).all() and (picture[0, 0] == 1).all()
    assert collisions(chart) == []


def test_a_front_says_how_much_of_it_is_sure():
    table = BOARD.assign(accuracy=BOARD.test_accuracy)
    table = table.join(front_shares(table, "test_accuracy", ["forgetting"], 1319))
    chart = front_chart(table, "forgetting", "forgetting", log=True, least=0.46)
    shown = table[table.accuracy >= 0.46]
    held = (shown.front & (shown.share >= 0.95)).sum()
    assert chart.finding.startswith(
        f"Of the {len(shown)} rows shown, {shown.front.sum()} are on the front, {held} of them in 95% or more"
    )
    assert front_chart(table, "forgetting", "forgetting").finding.startswith("Of the 63 rows, ")
    assert collisions(chart) == [] == struck(chart)
    assert any(f"lily-rank140 {100 * table.share[0]:.0f}%" == text.get_text() for text in chart.axes[0].texts)
    with pytest.raises(ValueError, match="least=2: expected one that leaves some of the 63 rows"):
        front_chart(table, "forgetting", "forgetting", least=2)
