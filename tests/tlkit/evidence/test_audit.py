"""What a published table can show: the arithmetic against scipy, false alarms, and what is refused."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tlkit.cli import main
from tlkit.evidence.audit import audit, items_needed, seeds_needed
from tlkit.settings import DATA


def shares(*right, items=1000):
    return pd.DataFrame({"model": [f"m{place}" for place in range(len(right))], "accuracy": np.array(right) / items})


def test_a_pair_of_shares_is_the_z_test_and_its_interval_excludes_zero_where_it_is_separated():
    found = audit(shares(600, 560, 500, 499), "accuracy", 1000)
    for pair in found.pairs.itertuples():
        one, other = (found.table.set_index("name").value[name] for name in (pair.first, pair.second))
        half = stats.norm.isf(0.05 / 6 / 2) * math.sqrt((one * (1 - one) + other * (1 - other)) / 1000)
        assert [pair.low, pair.high] == pytest.approx([one - other - half, one - other + half])
        assert (pair.low > 0 or pair.high < 0) == pair.separated
    assert found.table["rank"].tolist() == ["tied 1-2", "tied 1-2", "tied 3-4", "tied 3-4"]


def test_equal_rows_are_separated_in_at_most_5_percent_of_tables_and_more_seldom_where_they_share_items():
    chance = np.random.default_rng(0)
    alone, together = 0, 0
    for _ in range(100):
        alone += audit(shares(*chance.binomial(1000, 0.5, 8)), "accuracy", 1000).pairs.separated.any()
        hard = chance.random(1000)  # a question's, for all rows
        answers = (hard + chance.normal(0, 0.3, (8, 1000)) < 0.5).sum(axis=1)
        together += audit(shares(*answers), "accuracy", 1000).pairs.separated.any()
    assert alone <= stats.binom.ppf(0.999, 100, 0.05) and together <= alone


@pytest.mark.parametrize("items", [(100, 100, 100), (30, 1000, 1000)])
@pytest.mark.parametrize("share", [0.005, 0.95])
def test_equal_rows_near_0_and_1_are_separated_in_hardly_more_than_5_percent_of_tables(items, share):
    """The normal distribution adds a hundredth at most."""
    chance = np.random.default_rng(0)
    tables = chance.binomial(items, share, (100, len(items))) / items
    columns = {"model": list("abc")[: len(items)], "n": items}
    alarms = sum(
        audit(pd.DataFrame(columns | {"accuracy": one}), "accuracy", "n").pairs.separated.any() for one in tables
    )
    assert alarms <= stats.binom.ppf(0.999, 100, 0.06)


@pytest.mark.parametrize(("right", "items"), [((0, 4), 30), ((996, 1000), 1000), ((0, 5, 6, 8, 30), 1000)])
def test_no_pair_is_separated_whose_most_favourable_answers_mcnemars_test_could_not_separate(right, items):
    found = audit(shares(*right, items=items), "accuracy", items)
    for pair in found.pairs.itertuples():
        more = round(abs(pair.difference) * items)
        best = stats.binomtest(more, more).pvalue if more else 1
        assert (pair.low > 0 or pair.high < 0) == pair.separated and (
            best < 0.05 / len(found.pairs) or not pair.separated
        )
    assert len(right) > 2 or not found.pairs.separated.any()


def test_rows_with_other_items_are_no_surer_than_the_pooled_test_of_two_shares():
    table = pd.DataFrame({"model": ["a", "b"], "accuracy": [0, 0.03], "n": [30, 1000]})
    pooled = stats.chi2_contingency([[0, 30], [30, 970]], correction=False).pvalue
    (pair,) = audit(table, "accuracy", "n").pairs.itertuples()
    wide = (pair.high - pair.low) / 2 / stats.norm.isf(0.025)
    assert 2 * stats.norm.sf(0.03 / wide) == pytest.approx(pooled) and not pair.separated and pooled > 0.3


def test_rows_may_have_other_numbers_of_items():
    table = pd.DataFrame({"model": ["a", "b"], "accuracy": [0.2, 0.3], "n": [4000, 3000]})
    found = audit(table, "accuracy", "n")
    assert found.table.name.tolist() == ["b", "a"] and found.table["rank"].tolist() == ["1", "2"]
    assert found.table["items"].tolist() == [3000, 4000]


def test_a_plan_finds_what_it_promises():
    items = items_needed(0.05, 0.5)
    chance = np.random.default_rng(0)
    one, other = (chance.binomial(items, share, 4000) / items for share in (0.525, 0.475))
    error = np.sqrt((one * (1 - one) + other * (1 - other)) / items)
    assert (np.abs(one - other) > 1.96 * error).mean() == pytest.approx(0.8, abs=0.02)
    seeds = seeds_needed(1.0, 1.0)
    drawn = chance.normal(0, 1, (4000, 2, seeds)) + np.array([[0.0], [1.0]])
    p = stats.ttest_ind(drawn[:, 0], drawn[:, 1], axis=1).pvalue
    assert seeds == 17 and (p < 0.05).mean() == pytest.approx(0.8, abs=0.02)


REFUSED = [
    ("a,accuracy\nx,0.5\ny,0.6", ["--metric", "acc"], "no column 'acc': expected one of 'a', 'accuracy'"),
    ("a,accuracy,n\nx,0.5,90\ny,0.6,90", ["--items", "m"], "no column 'm': expected one of 'a', 'accuracy', 'n'"),
    ("a,accuracy\nx,0.5", [], "the table has 1 row(s): expected at least 2"),
    ("a,accuracy\nx,0.5\nx,0.6", [], "column 'a' has 'x': expected a name of its own"),
    ("a,accuracy\nx,50\ny,60", [], "row 'x': accuracy is '50', expected 0 to 1, or 0 to 100 with --percent"),
    ("a,accuracy\nx,0.5\ny,0.6", ["--percent"], "row 'x': accuracy is '0.5', expected 0, or above 1 to 100"),
    ("a,accuracy\nx,True\ny,False", [], "row 'x': accuracy is 'True', expected a number"),
    ('a,accuracy\nx,"62,5"\ny,60', ["--percent"], "is '62,5', expected a number such as 62.5, with a point"),
    ("a,accuracy\nx,0.5\ny,0.6", ["--items", "10"], "items is '10', expected a whole number of at least 30"),
    (
        'a,accuracy,n\nx,0.5,"1,000"\ny,0.6,100',
        ["--items", "n"],
        "n is '1,000', expected a whole number of at least 30",
    ),
    ("a,accuracy\nx,0.500\ny,0.499", ["--items", "999"], "accuracy is '0.500', expected what a whole number of items"),
    ("a,accuracy\nx,62,5\ny,60,0", ["--percent"], "as many fields in each line"),
    ("\n  \n", [], "expected a CSV file with a line of column names"),
    ("a,accuracy\nx,0.5\ny,0,6", [], "expected a CSV file with a line of column names"),
]


@pytest.mark.parametrize(("text", "options", "expected"), REFUSED)
def test_a_table_that_cannot_support_it_is_refused_in_one_line(text, options, expected, tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text(text)
    words = ["audit", str(path), "--metric", "accuracy", "--items", "100", *options]  # of two, the last one counts
    assert main(words) == 2
    heard = capsys.readouterr().err.splitlines()
    assert len(heard) == 1 and expected in heard[0], heard


ITEMS = ["--items", "n"]
READ = [
    ("\ufeffmodel, accuracy ,n\nNone,0.5,1000\n\nNA, 0.6 ,1000\nnull,0.70,1000.0\n,,\n", ITEMS, ["null", "NA", "None"]),
    ("model\taccuracy\tn\na\t0.5\t1e3\nb, c\t0.6\t1000\nc\t0.7\t1000\n", ITEMS, ["c", "b, c", "a"]),
    (
        'model,accuracy,n\n"a, big",0.5,1000\n "b ""large""", 0.6,1000\n模型,0.7,1000\n',
        ITEMS,
        ["模型", 'b "large"', "a, big"],
    ),
    ("model;accuracy;n\n1,5;0.5;1000\n1,50;.6;1000\n2,5;0.700;1000", ITEMS, ["2,5", "1,50", "1,5"]),
    ("\n# a board\nplace,model,accuracy\n1,a,70%\n1,b,60.0 %\n1,c ,50%", ["--percent"], ["a", "b", "c"]),
    ("model,accuracy\na,0.699999988079071\nb,0.6000000238418579\nc,0.5", [], ["a", "b", "c"]),  # of 32 bits
]


@pytest.mark.parametrize(("text", "options", "names"), READ)
def test_names_are_read_as_they_are_written_and_numbers_as_they_are_meant(text, options, names, tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    assert main(["audit", str(path), "--metric", "accuracy", "--items", "1000", *options, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["name"] for row in rows] == names and [row["items"] for row in rows] == [1000] * 3
    assert [row["value"] for row in rows] == pytest.approx([0.7, 0.6, 0.5])


def test_the_command_says_it_to_people_and_to_machines(tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text("model,score\nlarge,62\nmedium,50\nsmall,48.5\n")
    line = ["audit", str(path), "--metric", "score", "--items", "1000", "--percent"]
    assert main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["rank"] for row in found["rows"]] == ["1", "tied 2-3", "tied 2-3"]
    assert (found["separated"], len(found["pairs"]), len(found["assumptions"])) == (2, 3, 5)
    assert {row["of"] for row in found["plan"]} == {"items", "seeds"}
    assert main(line) == 0
    said = capsys.readouterr().out
    assert "2 of 3 pairs can be told apart by test sampling alone" in said
    assert "covariance of a pair is taken as zero" in " ".join(said.split())


def test_the_leaderboard_is_whole_and_its_reruns_end_in_its_figures():
    names = ("peft_metamathqa", "peft_metamathqa_reruns")
    board, runs = (pd.read_csv(DATA / "leaderboards" / f"{name}.csv") for name in names)
    assert len(board) == 63 and board.experiment.is_unique and (board.seed == 0).all() and (runs.seed == 0).all()
    last = runs.drop_duplicates("experiment", keep="last").set_index("experiment").test_accuracy
    both = board.set_index("experiment").test_accuracy.to_frame("board").join(last, how="inner")
    assert len(both) == 51 and (both.board == both.test_accuracy).all()
