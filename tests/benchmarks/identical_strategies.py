"""How often strategies that are equal are called separated: `python tests/benchmarks/identical_strategies.py`.

Seven strategies with one and the same distribution are compared, again and again, and in the last row 22, as many as
there are; a table is in error where any of its 21 (or 231) pairs is separated. Three methods judge the same tables:
`compare_pairs`, the t-interval of each pair over seeds alone, and a bootstrap over documents and seeds, with
Bonferroni's correction as the first. Writes `identical_strategies.csv`, and `real_differences.csv`: how often
differences of the size that the bundled model shows are found.

The spreads are those of the comparison of the bundled model in the profile `ci` (40 documents, 3 seeds), in nats per
token: a strategy's own liking for a document 0.05, its luck with a seed on all documents 0.008, and on one document
0.028. Documents differ by much more, but that cancels in pairs.
"""

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp

from tlkit.evidence.statistics import compare_pairs

STRATEGIES, ALL = 7, 22
# Spreads of (document, seed, both) for each strategy.
REAL = (0.05, 0.008, 0.028)
EXTREMES = {
    "seeds matter most": (0.0, 0.05, 0.02),
    "documents matter most": (0.05, 0.0, 0.005),
    "nothing but noise": (0.0, 0.0, 0.03),
}
# Nats per token above the best, of full fine-tuning to bitfit on the bundled model.
MEASURED = (0.0, 0.052, 0.026, 0.058, 0.101, 0.112, 0.381)


def simulated(
    random: np.random.Generator,
    documents: int,
    seeds: int,
    spreads: tuple[float, float, float] = REAL,
    levels: tuple[float, ...] = (0.0,) * STRATEGIES,
    lengths: float = 0.8,
    unstable: float = 1.0,
) -> pd.DataFrame:
    """Scores as `compare_pairs` takes them; heavy-tailed (t with 5 degrees of freedom), documents of unequal length.

    Args:
        spreads: standard deviations of the effects of a document, of a seed, and of both, in nats per token.
        levels: what each strategy's nats per token are above those of the best; equal strategies have equal ones.
        lengths: standard deviation of the logarithm of a document's tokens; it is 0.2 in the bundled texts.
        unstable: so many times as much do seeds matter to the first strategy.
    """

    def heavy(*shape: int) -> np.ndarray:
        return random.standard_t(5, shape) / np.sqrt(5 / 3)

    count = len(levels)
    tokens = np.round(random.lognormal(np.log(130), lengths, documents)) + 2
    of_document, of_seed, of_both = spreads
    share = np.array([unstable] + [1.0] * (count - 1))
    rates = 4.4 + 0.5 * heavy(documents, 1, 1) + np.array(levels)[:, None]
    rates = rates + of_document * heavy(documents, count, 1) + of_both * heavy(documents, count, seeds)
    rates = rates + of_seed * share[:, None] * random.normal(size=(1, count, seeds))
    places = pd.MultiIndex.from_product(
        [range(documents), [f"strategy {n}" for n in range(count)], range(seeds)],
        names=["document", "strategy", "seed"],
    )
    nats = rates * tokens[:, None, None]
    scores = pd.DataFrame({"nats": nats.ravel(), "tokens": np.repeat(tokens.astype(int), count * seeds)}, index=places)
    return scores.reset_index()


def by_seeds_alone(scores: pd.DataFrame) -> set[tuple[str, str]]:
    """The pairs whose differences of perplexity, seed by seed, have a 95% t-interval that leaves zero out."""
    runs = scores.groupby(["seed", "strategy"], sort=False)[["nats", "tokens"]].sum()
    perplexity = np.exp(runs.nats / runs.tokens).unstack()
    pairs = list(combinations(perplexity.columns, 2))
    apart = np.stack([perplexity[one] - perplexity[other] for one, other in pairs])
    return {pair for pair, p in zip(pairs, ttest_1samp(apart, 0.0, axis=1).pvalue, strict=True) if p < 0.05}


def by_bootstrap(scores: pd.DataFrame, random: np.random.Generator, draws: int = 2000) -> set[tuple[str, str]]:
    """The pairs that a bootstrap over documents and seeds separates, at 5% with Bonferroni's correction."""
    nats = scores.pivot(index="document", columns=["strategy", "seed"], values="nats")
    tokens = scores.groupby("document").tokens.first().to_numpy()
    names = list(scores.strategy.unique())
    cube = np.stack([nats[name].to_numpy() for name in names], axis=1)
    documents, _, seeds = cube.shape
    weights = random.multinomial(documents, np.ones(documents) / documents, draws)
    of_seeds = random.multinomial(seeds, np.ones(seeds) / seeds, draws) / seeds
    levels = np.einsum("dks,rd,rs->rk", cube, weights, of_seeds, optimize=True) / (weights @ tokens)[:, None]
    tails = {}
    for one, other in combinations(range(len(names)), 2):
        below = np.mean(levels[:, one] < levels[:, other])
        tails[names[one], names[other]] = 2 * min(below, 1 - below)
    return {pair for pair, tail in tails.items() if tail < 0.05 / len(tails)}


def by_pairs(scores: pd.DataFrame) -> set[tuple[str, str]]:
    """The pairs that `compare_pairs` separates."""
    pairs = compare_pairs(scores)
    return set(pairs.loc[pairs.separated, ["first", "second"]].itertuples(index=False, name=None))


def errors(tables: int) -> pd.DataFrame:
    """The share of tables of equal strategies in which any pair is separated, in percent, by each method."""
    few = STRATEGIES
    settings = [
        ("as measured", few, documents, seeds, REAL, 1.0) for documents in (5, 10, 40, 200) for seeds in (2, 3, 5)
    ]
    settings += [
        (name, few, documents, seeds, spreads, 1.0)
        for name, spreads in EXTREMES.items()
        for documents in (10, 40)
        for seeds in (2, 3, 5)
    ]
    uneven = "one strategy's seeds matter 5 times more"
    settings += [(uneven, few, 40, seeds, (0.0, 0.01, 0.01), 5.0) for seeds in (2, 3, 5)]
    settings += [("as measured", ALL, 40, 3, REAL, 1.0)]
    rows = []
    for number, (name, count, documents, seeds, spreads, unstable) in enumerate(settings):
        random = np.random.default_rng(number)
        counts = {"compare_pairs": 0, "seeds_alone": 0, "bootstrap": 0}
        for _ in range(tables):
            scores = simulated(random, documents, seeds, spreads, (0.0,) * count, unstable=unstable)
            counts["compare_pairs"] += bool(by_pairs(scores))
            counts["seeds_alone"] += bool(by_seeds_alone(scores))
            counts["bootstrap"] += bool(by_bootstrap(scores, random))
        shares = {f"{method}_percent": 100 * count / tables for method, count in counts.items()}
        size = {"strategies": count, "documents": documents, "seeds": seeds, "tables": tables}
        rows.append({"spreads": name} | size | shares)
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def finds(tables: int) -> pd.DataFrame:
    """Real differences found by `compare_pairs`: of all 21 pairs, and of full fine-tuning and LoRA (0.101 nats)."""
    rows = []
    for number, (documents, seeds) in enumerate((d, s) for d in (5, 10, 40, 200) for s in (2, 3, 5)):
        random = np.random.default_rng(number)
        found = [by_pairs(simulated(random, documents, seeds, levels=MEASURED, lengths=0.2)) for _ in range(tables)]
        pairs = sum(map(len, found)) / tables
        wanted = 100 * sum(("strategy 0", "strategy 4") in pairs for pairs in found) / tables
        size = {"documents": documents, "seeds": seeds, "tables": tables}
        rows.append(size | {"pairs_separated_of_21": pairs, "full_and_lora_percent": wanted})
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    here = Path(__file__).parent
    finds(tables=200).to_csv(here / "real_differences.csv", index=False)
    errors(tables=250).to_csv(here / "identical_strategies.csv", index=False)
