"""What a published table can show: the arithmetic against scipy, false alarms, and what is refused."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tlkit.cli import main
from tlkit.evidence.audit import audit
from tlkit.evidence.fronts import front_shares, on_front
from tlkit.evidence.leaderboards import leaderboard
from tlkit.evidence.planning import detectable_difference, items_needed, seeds_needed


def shares(*right, items=1000):
    return pd.DataFrame({"model": [f"m{place}" for place in range(len(right))], "accuracy": np.array(right) / items})


def test_a_pair_of_shares_is_the_z_test_and_its_interval_excludes_zero_where_it_is_separated():
    found = audit(shares(600, 560, 500, 499), "accuracy", 1000)
    for pair in found.pairs.itertuples():
        one, other = (found.table.set_index("name").value[name] for name in (pair.first, pair.second))
        error = math.sqrt((one * (1 - one) + other * (1 - other)) / 1000)
        assert pair.p == pytest.approx(2 * stats.norm.sf(abs(one - other) / error))
        assert (pair.low > 0 or pair.high < 0) == pair.separated
    assert found.pairs.p_adjusted.min() == pytest.approx(6 * found.pairs.p.min())
    assert found.table["rank"].tolist() == ["tied 1-2", "tied 1-2", "tied 3-4", "tied 3-4"]
    assert found.separated + found.undecided + found.out_of_reach == 6


def test_means_are_welchs_test_for_many_items_and_lower_can_be_better():
    table = pd.DataFrame({"model": ["a", "b"], "loss": [2.0, 2.08], "sd": [1.0, 1.5], "n": [4000, 3000]})
    found = audit(table, "loss", "n", deviation="sd", lower_is_better=True)
    welch = stats.ttest_ind_from_stats(2.0, 1.0, 4000, 2.08, 1.5, 3000, equal_var=False)
    assert found.pairs.p[0] == pytest.approx(welch.pvalue, rel=0.02)
    assert found.table.name.tolist() == ["a", "b"] and found.table["rank"].tolist() == ["1", "2"]
    assert found.table["items"].tolist() == [4000, 3000]
    assert "Rows with other numbers of items" in " ".join(found.assumptions)


def test_equal_rows_are_separated_in_at_most_5_percent_of_tables_and_more_seldom_where_they_share_items():
    chance = np.random.default_rng(0)
    alone, together = 0, 0
    for _ in range(300):
        alone += audit(shares(*chance.binomial(1000, 0.5, 8)), "accuracy", 1000).separated > 0
        hard = chance.random(1000)  # a question's, for all rows
        answers = (hard + chance.normal(0, 0.3, (8, 1000)) < 0.5).sum(axis=1)
        together += audit(shares(*answers), "accuracy", 1000).separated > 0
    assert alone <= 0.08 * 300 and together <= alone


def test_a_known_correlation_gives_the_error_of_the_pairs():
    chance = np.random.default_rng(1)
    hard = chance.random(5000)
    one, other = ((hard + chance.normal(0, 0.4, 5000) < place).astype(float) for place in (0.5, 0.53))
    table = shares(int(one.sum()), int(other.sum()), items=5000)
    found = audit(table, "accuracy", 5000, correlation=float(np.corrcoef(one, other)[0, 1]))
    paired = abs((one - other).mean()) / ((one - other).std() / math.sqrt(5000))
    assert found.pairs.p[0] == pytest.approx(2 * stats.norm.sf(paired), rel=1e-6)
    assert "correlate by" in " ".join(found.assumptions)


def test_what_no_answers_could_tell_apart_is_mcnemars_best_case():
    pairs = audit(shares(500, 495, items=1000), "accuracy", 1000).pairs
    assert not pairs.possible[0] and 2 * 0.5**5 > 0.05
    assert audit(shares(500, 494, items=1000), "accuracy", 1000).pairs.possible[0] and 2 * 0.5**6 < 0.05


def test_a_plan_finds_what_it_promises():
    items = items_needed(0.05, 0.5)
    assert detectable_difference(0.5, items) == pytest.approx(0.05, rel=1e-3)
    chance = np.random.default_rng(0)
    one, other = (chance.binomial(items, share, 4000) / items for share in (0.525, 0.475))
    error = np.sqrt((one * (1 - one) + other * (1 - other)) / items)
    assert (np.abs(one - other) > 1.96 * error).mean() == pytest.approx(0.8, abs=0.02)
    seeds = seeds_needed(1.0, 1.0)
    drawn = chance.normal(0, 1, (4000, 2, seeds)) + np.array([[0.0], [1.0]])
    p = stats.ttest_ind(drawn[:, 0], drawn[:, 1], axis=1).pvalue
    assert seeds == 17 and (p < 0.05).mean() == pytest.approx(0.8, abs=0.02)
    with pytest.raises(ValueError, match="difference=0: expected a number above 0"):
        items_needed(0, 0.5)
    with pytest.raises(ValueError, match="more than 10,000 seeds"):
        seeds_needed(1e-6, 1.0)


REFUSED = [
    ("a,accuracy\nx,0.5\ny,0.6", ["--metric", "acc"], "no column 'acc': expected one of a, accuracy"),
    ("a,accuracy\nx,0.5\ny,0.6", ["--items", "tests"], "no column 'tests'"),
    ("a,accuracy\nx,0.5", [], "the table has 1 row: expected at least 2 to compare"),
    ("a,accuracy\nx,0.5\nx,0.6", [], "row 'x' is there twice"),
    ("a,accuracy\nx,0.5\ny,60", [], "accuracy mixes shares and percentages: row 'x' has 0.5, row 'y' 60"),
    ("a,accuracy\nx,50\ny,60", [], "row 'x': accuracy is 50, expected 0 to 1, or percent (--percent)"),
    ("a,accuracy\nx,0.5\ny,0.6", ["--percent"], "these look like shares"),
    ("a,accuracy\nx,-0.1\ny,0.6", [], "row 'x': accuracy is -0.1, expected 0 to 1"),
    ("a,accuracy\nx,0.5\ny,160", [], "row 'y': accuracy is 160, expected 0 to 1"),
    ("a,accuracy\nx,0.5\ny,?", [], "row 'y': accuracy is '?', expected a number"),
    ("a,accuracy\nx,0.5\ny,", [], "row 'y': accuracy is nan, expected a number"),
    ("a,accuracy,n\nx,0.5,100\ny,0.6,", ["--items", "n"], "row 'y': n is nan, expected a number"),
    ("a,accuracy\nx,0.5\ny,0.6", ["--items", "10"], "row 'x': items is 10, expected a whole number of at least 30"),
    ("a,accuracy\nx,0.512345\ny,0.6", [], "which is 51.2345 of 100 items, expected a whole number of them"),
    ("a,accuracy,sd\nx,0.5,-1\ny,0.6,1", ["--deviation", "sd"], "row 'x': sd is -1, expected at least 0"),
    ("a,accuracy\nx,0.5\ny,0.6", ["--correlation", "1"], "--correlation '1': expected a number"),
    ("", [], "expected a CSV file with a line of column names"),
    ('a,b\n"x', [], "expected a CSV file with a line of column names"),
]


@pytest.mark.parametrize(("text", "options", "expected"), REFUSED)
def test_a_table_that_cannot_support_it_is_refused_in_one_line(text, options, expected, tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text(text)
    given = dict(zip(options[::2], options[1::2], strict=False)) if len(options) % 2 == 0 else {}
    line = ["audit", str(path)]
    for name, value in ({"--metric": "accuracy", "--items": "100"} | given).items():
        line += [name, value]
    assert main([*line, *(options if len(options) % 2 else [])]) == 2
    heard = capsys.readouterr().err.splitlines()
    assert len(heard) == 1 and expected in heard[0], heard


def test_the_command_says_it_to_people_and_to_machines(tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text("model,score\nlarge,62\nmedium,50\nsmall,48.5\n")
    line = ["audit", str(path), "--metric", "score", "--items", "1000", "--percent"]
    assert main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["rank"] for row in found["rows"]] == ["1", "tied 2-3", "tied 2-3"]
    assert (found["separated"], len(found["pairs"]), len(found["assumptions"])) == (2, 3, 3)
    assert {row["of"] for row in found["plan"]} == {"items", "seeds"}
    assert main(line) == 0
    said = capsys.readouterr().out
    assert "2 of 3 pairs can be told apart by test sampling alone" in said
    assert "covariance of a pair is taken as zero" in " ".join(said.split())


def test_the_front_is_what_a_search_over_all_pairs_finds():
    chance = np.random.default_rng(0)
    for costs in (1, 2):
        value, cost = chance.integers(0, 4, 20), chance.integers(0, 4, (20, costs))
        beaten = [
            any(
                value[j] >= value[i]
                and (cost[j] <= cost[i]).all()
                and (value[j] > value[i] or (cost[j] < cost[i]).any())
                for j in range(20)
            )
            for i in range(20)
        ]
        assert on_front(value, cost).tolist() == [not lost for lost in beaten]


def test_a_share_of_the_draws_is_the_chance_to_win():
    table = pd.DataFrame({"accuracy": [0.52, 0.50, 0.2], "memory": [2, 1, 3]})
    found = front_shares(table, "accuracy", ["memory"], 1000, draws=20_000)
    error = math.sqrt((0.52 * 0.48 + 0.5 * 0.5) / 1000)
    assert found.front.tolist() == [True, True, False]
    assert found.share.tolist() == pytest.approx([stats.norm.sf(-0.0195 / error), 1, 0], abs=0.01)
    with pytest.raises(ValueError, match="no column 'seconds'"):
        front_shares(table, "accuracy", ["seconds"], 1000)


def test_the_leaderboard_is_whole_and_its_reruns_end_in_its_figures():
    board, runs = leaderboard(), leaderboard("peft_metamathqa_reruns")
    assert len(board) == 63 and board.name.is_unique and (board.seed == 0).all() and (runs.seed == 0).all()
    last = runs.drop_duplicates("experiment", keep="last").set_index("experiment").test_accuracy
    both = board.set_index("experiment").test_accuracy.to_frame("board").join(last, how="inner")
    assert len(both) == 51 and (both.board == both.test_accuracy).all()
    with pytest.raises(ValueError, match="leaderboard 'nowhere' is unknown: expected one of peft_metamathqa, "):
        leaderboard("nowhere")
