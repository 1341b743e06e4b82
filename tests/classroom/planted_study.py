"""A sound study whose every effect is known, without any training, and the bad ones that are made of it."""

from dataclasses import replace

import numpy as np

from tlkit.classroom.study.plan import Decision, StudyPlan
from tlkit.classroom.study.record import Answered, Baseline, Fit, Study, StudyRun, Text, Trained, Tried
from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.evidence.learning_rates import CONTROL

DOCUMENTS, SEEDS, BEST = 40, 3, {"full": 1e-3, "lora": 1e-2, CONTROL: 3e-3}
VALUES = {"full": 4_036_800, "lora": 221_184, CONTROL: 4_036_800, ZERO_SHOT: 0}
GENERAL = {ZERO_SHOT: 36.0, "full": 60.0, "lora": 45.0, CONTROL: 3000.0}
BECAUSE = "With $steps_full steps each, full reached $perplexity_full and lora $perplexity_lora, so it is ahead here."
EXPLANATION = (
    "The rate may be the reason, $rate_full against $rate_lora: a run at equal gain would test this hypothesis."
)
LIMITS = "It is one small model and one text, and longer training or another card could change the order."
PLAN = StudyPlan("Which of the two adapts the model better to my text?", ("full", "lora"), 5, 100, "128MB")


def planted_study(
    apart: float = -0.15,
    *,
    documents: int = DOCUMENTS,
    seeds: int = SEEDS,
    noise: float = 0.02,
    decision: Decision | None = None,
    plan: StudyPlan = PLAN,
) -> Study:
    """Make a study that is sound.

    Args:
        apart: how far full lies from lora, in nats a token.
        documents: in the test split.
        seeds: of each strategy.
        noise: between seeds and documents, in nats a token.
        decision: what was decided; default: what the difference supports.
        plan: what was settled before.
    """
    draw = np.random.default_rng(0)
    base, tokens = draw.normal(5.7, 0.4, documents), draw.integers(40, 90, documents)
    change = {ZERO_SHOT: 0.0, "full": -1.2 + apart / 2, "lora": -1.2 - apart / 2, CONTROL: 0.4}
    runs = []
    for name, moved in change.items():
        for seed in range(seeds if name in plan.strategies else 1):
            luck = 0.0 if name == ZERO_SHOT else draw.normal(0, noise) + draw.normal(0, noise, documents)
            trained = name != ZERO_SHOT
            runs.append(
                StudyRun(
                    strategy=name,
                    seed=seed,
                    split="test",
                    metric="perplexity",
                    learning_rate=BEST.get(name),
                    steps=15 * trained,
                    tokens=3780 * trained,
                    context=256,
                    stride=256,
                    batch_size=4,
                    block_size=64,
                    trainable_values=VALUES[name],
                    first_loss=5.8 if trained else None,
                    peak_mb={"full": 92.0, "lora": 59.0, CONTROL: 92.0}.get(name),
                    seconds=1.5 * trained,
                    general=GENERAL[name],
                    nats=[float(value) for value in (base + moved + luck) * tokens],
                )
            )
    tried = [
        Tried(name, best * 10.0**step, 0, "validation", None if step > 1 else 90 + 30 * abs(step))
        for name, best in BEST.items()
        for step in (-3, -2, -1, 0, 0.5, 1, 2)
    ]
    return Study(
        plan=plan,
        text=Text(
            "notes",
            "0" * 64,
            {"train": 60, "validation": 40, "test": documents},
            {"train": 3675, "validation": 2508, "test": int(tokens.sum())},
            1,
            {"validation in train": 0, "test in train": 0, "test in validation": 0, "test in test": 0},
            8.4,
            9.9,
        ),
        model="tiny",
        baseline=Baseline(300.0, 270.0, 335.0, 40, 5.7, 4096, "1" * 64),
        fits=[Fit("full", 92.0, 114.0), Fit("lora", 59.0, 114.0)],
        tried=tried,
        trained=[
            Trained("full", VALUES["full"], {"embedding": 786_432, "block 0": VALUES["full"] - 786_432}, [], 3e9),
            Trained("lora", VALUES["lora"], {"adapters": VALUES["lora"]}, [], 2e9),
        ],
        runs=runs,
        document_tokens=[int(count) for count in tokens],
        answered=[Answered(name, "general", 10, 0.3, 0.0, -0.2, 0.2) for name in plan.strategies],
        failures={},
        provenance={
            "model": "tiny",
            "corpus": "notes",
            "weights_sha256": "1" * 64,
            "command": "python -m tlkit compare",
        },
        decision=decision or _supported(apart, noise),
    )


def changed(study: Study, strategy: str, **fields) -> Study:
    """The same study with other values in every run of a strategy."""
    return replace(study, runs=[replace(run, **fields) if run.strategy == strategy else run for run in study.runs])


def without(study: Study, keep) -> Study:
    """The same study with the runs that are to be kept."""
    return replace(study, runs=[run for run in study.runs if keep(run)])


def _supported(apart: float, noise: float) -> Decision:
    if abs(apart) < 3 * noise:
        return Decision("cannot tell", "full", "lora", BECAUSE.replace("so it is ahead", "close"), EXPLANATION, LIMITS)
    ahead = ("full", "lora") if apart < 0 else ("lora", "full")
    return Decision("better", *ahead, BECAUSE, EXPLANATION, LIMITS)
