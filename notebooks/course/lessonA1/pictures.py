"""Pictures of training in time: which part learns in which step, at what rate, and what that step has to compute."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.patches import Patch

from tlkit.evidence.learning_rates import default_rates
from tlkit.evidence.recorded import recorded
from tlkit.models.adapters import base_model
from tlkit.models.groups import groups_of
from tlkit.reports.drawing import INK, SPARED
from tlkit.reports.figure import SIZE, Chart, described, headline
from tlkit.reports.findings import listed
from tlkit.settings import TrainingConfig
from tlkit.steps import first_step
from tlkit.strategies import StrategyReport, component_of
from tlkit.training import learning_rate_factor

LOWEST_SHOWN = 0.01  # of the highest rate; what is lower is drawn as this


def rates_by_part(report: StrategyReport, config: TrainingConfig, steps: int) -> dict[str, np.ndarray]:
    """The learning rate of each part of a model in each step; 0 where it is frozen.

    Args:
        report: what `apply_strategy` returned; without adapters.
        config: has the rate, the warm-up and the schedule.
        steps: of the run.

    Returns:
        By part, from the embedding to the head, an array with a rate for each step.
    """
    owners = component_of(base_model(report.model))
    rates = {name: np.zeros(steps) for name in report.components}
    factors = np.array([learning_rate_factor(step, steps, config) for step in range(steps)])
    for group in groups_of(report.model):
        begun = np.arange(steps) >= first_step(group.begins, steps)
        for parameter in group.parameters:
            rates[owners[id(parameter)]] = config.learning_rate * group.rate * factors * begun
    return {name.replace("final norm and others", "norm"): rate for name, rate in rates.items()}


@described
def schedule_chart(reports: dict[str, StrategyReport], config: TrainingConfig, steps: int) -> Chart:
    """Which part of a model learns in which step, and at what rate: a row for each part, a column for each step.

    Args:
        reports: what `apply_strategy` returned, by the name that is written over each panel.
        config: has the rate, the warm-up and the schedule.
        steps: of the run.
    """
    figure, panels = plt.subplots(
        1, len(reports), FigureClass=Chart, figsize=(SIZE[0], 4.0), sharey=True, squeeze=False, layout="constrained"
    )
    plt.close(figure)
    blues = plt.get_cmap("Blues")(np.linspace(0.25, 1, 256))  # its lightest are as good as white
    shades = ListedColormap(blues)
    shades.set_bad(SPARED)
    norm = LogNorm(LOWEST_SHOWN * config.learning_rate, config.learning_rate, clip=True)
    trained = []
    for axes, (name, report) in zip(panels[0], reports.items(), strict=True):
        rates = rates_by_part(report, config, steps)
        grid = np.stack(list(rates.values()))
        picture = axes.pcolormesh(
            np.arange(steps + 1) + 0.5, np.arange(len(rates) + 1), np.ma.masked_equal(grid, 0), cmap=shades, norm=norm
        )
        axes.hlines(np.arange(1, len(rates)), 0.5, steps + 0.5, color="white", linewidth=1.5)
        axes.set_xlim(0.5, steps + 0.5)
        axes.set_yticks(np.arange(len(rates)) + 0.5, list(rates))
        axes.set_title(name, fontsize="medium")
        axes.set_xlabel("optimizer step")
        _tick_the_borders(axes, report, steps)
        trained.append((grid > 0).mean())
    bar = figure.colorbar(picture, ax=list(panels[0]), shrink=0.8)
    bar.set_label("learning rate (log scale)")
    figure.legend(
        [Patch(facecolor=SPARED, edgecolor=INK)], ["frozen in this step"], loc="outside lower center", frameon=False
    )
    shares = dict(zip(reports, trained, strict=True))
    told = [f"{name} trains in {100 * share:.0f}% of the steps" for name, share in shares.items() if share < 1]
    if whole := [name for name, share in shares.items() if share == 1]:
        verb = "" if told else " train" if len(whole) > 1 else " trains"
        told.append(f"{listed(whole)}{verb} in all of them" if told else f"{listed(whole)}{verb} in every step")
    headline(figure, f"On average over the parts, {', '.join(told)}")
    return figure


def _tick_the_borders(axes: Axes, report: StrategyReport, steps: int) -> None:
    """The first step of every phase, and the last step of all."""
    begins = sorted({first_step(group.begins, steps) + 1 for group in groups_of(report.model)})
    axes.set_xticks([*begins, steps])


def rate_paths(model: str, strategies: list[str], worst: float) -> dict[str, pd.DataFrame]:
    """What strategies gain and forget at the learning rates that were tried, from low ones up to the best of each.

    Args:
        model: a preset whose search for rates is recorded.
        strategies: names in that record.
        worst: perplexity on Rust; rates at which it is no lower are left out.

    Returns:
        By strategy a row for each rate, with columns label (the rate), rust and general: perplexities on validation
        text, means over seeds.
    """
    best, runs = default_rates(model), recorded("rates", model)
    scores = ["validation_perplexity", "general_perplexity"]
    paths = {}
    for name in strategies:
        path = runs[runs.strategy == name].groupby("learning_rate")[scores].mean().loc[: best[name]]
        path = path[path.validation_perplexity < worst].reset_index()
        path["learning_rate"] = path.learning_rate.map("{:g}".format)
        paths[name] = path.set_axis(["label", "rust", "general"], axis=1)
    return paths
