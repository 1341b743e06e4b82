"""Charts of a model's parts: what is trained, where gradients arrive, what 4 bits do, how much arithmetic a step is."""

import pandas as pd

from tlkit.evidence.flops import StepFlops
from tlkit.evidence.gradient_flow import GradientFlow
from tlkit.reports.figure import (
    COLOURS,
    FAINT,
    INK,
    Chart,
    described,
    headline,
    height_for,
    new_figure,
    panels_beside,
)
from tlkit.reports.findings import listed, number
from tlkit.reports.labels import beside_rows
from tlkit.strategies import StrategyReport

LOW = 0.26  # inches of a row, where a model has many blocks
NO_GRADIENT = 1e-12  # a norm below it is zero up to rounding
KINDS = {"lora_A": "adapter A", "lora_B": "adapter B"}


@described
def components_chart(*reports: StrategyReport) -> Chart:
    """Where a model's values are, and which of them each strategy trains; one panel a report, bottom block lowest.

    Args:
        reports: what `apply_strategy` returned, for models of one architecture.
    """
    rows = max(len(report.components) for report in reports)
    figure, panels = panels_beside(len(reports), height=height_for(rows, LOW))
    for axes, report in zip(panels, reports, strict=True):
        names = list(report.components)
        trained = [report.components[name].trainable_values / 1e6 for name in names]
        frozen = [c.total_values / 1e6 - t for c, t in zip(report.components.values(), trained, strict=True)]
        axes.barh(names, trained, color=COLOURS[0], edgecolor=INK, label="trained")
        axes.barh(names, frozen, left=trained, color="white", edgecolor=INK, hatch="///", label="frozen")
        axes.set_title(f"{report.strategy}: {number(report.trainable_values)} trained", fontsize="medium")
        axes.set_xlim(0, 1.3 * max(part.total_values for part in report.components.values()) / 1e6)
        axes.set_xlabel("million values")
        for place, (part, share) in enumerate(zip(report.components.values(), trained, strict=True)):
            beside = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": "x-small"}
            told = (
                ""
                if not share
                else "all"
                if share * 1e6 == part.total_values
                else f"{100 * share * 1e6 / part.total_values:.2g}%"
            )
            axes.annotate(told, (part.total_values / 1e6, place), color=COLOURS[0], **beside)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize="small", frameon=False
    )
    said = [
        f"{report.strategy} trains {_share(report.percent)} of {number(report.total_values)} values, "
        f"in {sum(part.trainable_values > 0 for part in report.components.values())} of {len(report.components)} parts"
        for report in reports
    ]
    headline(figure, "; ".join(said))
    return figure


@described
def gradient_flow_chart(flow: GradientFlow) -> Chart:
    """The gradient's norm at each place of the model, in the first two steps; a cross at the foot is a zero.

    Points, because a logarithmic scale has no zero that a bar could start from. The two matrices of an adapter are
    apart. Where no gradient arrived at all, nothing is drawn.

    Args:
        flow: what `check_gradient_flow` returned.
    """
    table = flow.table.assign(kind=flow.table.tensor.map(_kind_of))
    kinds = [kind for kind in ("weights", *KINDS.values()) if table[table.kind == kind].norm_2.notna().any()]
    kinds = kinds or ["weights"]
    norms = {
        kind: part.set_index("place")[["norm_1", "norm_2"]]
        .pow(2)
        .groupby(level=0, sort=False)
        .sum(min_count=1)
        .pow(0.5)
        for kind, part in table[table.kind.isin(kinds)].groupby("kind")
    }
    places = list(dict.fromkeys(table.place))
    figure, panels = panels_beside(len(kinds), height=height_for(len(places), LOW))
    seen = pd.concat(norms.values()).stack() if norms else pd.Series(dtype=float)
    seen = seen[seen > NO_GRADIENT]
    lowest, highest = (seen.min(), seen.max()) if len(seen) else (0.1, 1)
    foot = lowest / 3
    for axes, kind in zip(panels, kinds, strict=True):
        axes.grid(alpha=0.3)
        axes.set_xscale("log")
        axes.set_xlim(foot / 1.6, highest * 2)
        for order, step in enumerate(("norm_1", "norm_2")):
            found = norms.get(kind, pd.DataFrame(columns=["norm_1", "norm_2"])).reindex(places)[step]
            rows = [place + 0.2 * order - 0.1 for place in range(len(places))]
            style = {"color": COLOURS[order], "linestyle": "none", "label": f"step {order + 1}"}
            values = found.where(found > NO_GRADIENT).tolist()
            axes.plot(values, rows, marker="o^"[order], markersize=7, **style)
            zeros = [row for row, norm in zip(rows, found, strict=True) if norm <= NO_GRADIENT]
            style["label"] = f"_zero in step {order + 1}"
            axes.plot([foot] * len(zeros), zeros, marker="x", markersize=7, **style)
        if len(kinds) > 1:
            axes.set_title(kind, fontsize="medium")
        axes.set_xlabel("norm of the gradient (log scale)")
        axes.xaxis.set_minor_formatter("")
        axes.xaxis.set_major_formatter("{x:g}")
    panels[0].set_yticks(range(len(places)), places)
    panels[0].set_ylim(-0.6, len(places) - 0.4)
    handles, names = panels[0].get_legend_handles_labels()
    if any(line.get_marker() == "x" and len(line.get_xdata()) for axes in panels for line in axes.lines):
        handles, names = [*handles, panels[0].plot([], [], "x", color=FAINT)[0]], [*names, "zero"]
    options = {"loc": "outside lower center", "ncols": 3, "fontsize": "small", "frameon": False}
    figure.legend(handles, names, **options)
    headline(figure, _flow_finding(norms, places))
    return figure


@described
def flops_chart(steps: dict[str, StepFlops]) -> Chart:
    """Arithmetic of a training step by strategy: forward and backward pass, in billions of operations.

    Args:
        steps: by strategy what `count_flops` returned.
    """
    figure, axes = new_figure(height_for(len(steps)))
    names, forward = list(steps), [step.forward / 1e9 for step in steps.values()]
    backward = [step.backward / 1e9 for step in steps.values()]
    axes.barh(names, forward, color=COLOURS[5], edgecolor=INK, label="forward pass")
    axes.barh(names, backward, left=forward, color=COLOURS[4], edgecolor=INK, hatch="//", label="backward pass")
    axes.set_xlabel("billion floating-point operations in a training step")
    axes.invert_yaxis()
    total = {name: step.forward + step.backward for name, step in steps.items()}
    most, *fewer = sorted(total, key=total.get, reverse=True)
    beside_rows(
        axes,
        range(len(steps)),
        [
            f"{value / 1e9:.3g}" + f" ({100 * value / total[most]:.0f}%)" * (name != most)
            for name, value in total.items()
        ],
    )
    figure.legend(loc="outside lower center", ncols=2, fontsize="small", frameon=False)
    if fewer:
        least, *others = (f"{100 * total[name] / total[most]:.0f}%" for name in fewer[::-1])
        said = f"{fewer[-1]} needs {least} of the arithmetic of {most}"
        if len(others) == 1:
            said = f"Of the arithmetic of {most}, {fewer[-1]} needs {least} and {fewer[0]} {others[0]}"
        headline(figure, said)
    else:
        headline(
            figure, f"The backward pass is {backward[0] / forward[0]:.2g} times the arithmetic of the forward pass"
        )
    return figure


def _share(percent: float) -> str:
    return "all" if percent > 99.95 else f"{percent:.2g}%"


def _kind_of(tensor: str) -> str:
    return next((kind for part, kind in KINDS.items() if part in tensor), "weights")


def _flow_finding(norms: dict[str, pd.DataFrame], places: list[str]) -> str:
    """Which matrix of an adapter waits for the other, or how far down gradients arrive."""
    if "adapter A" in norms and "adapter B" in norms:
        (first_a, second_a), (first_b, _) = (
            [bool((norms[kind][step].dropna() > NO_GRADIENT).any()) for step in ("norm_1", "norm_2")]
            for kind in ("adapter A", "adapter B")
        )
        if first_b and second_a and not first_a:
            return "In step 1 only B has a gradient: A's contains B, which is zero, as a factor"
    arrived = [
        place
        for place in places
        if any(place in found.index and (found.loc[place] > NO_GRADIENT).any() for found in norms.values())
    ]
    missing = [place for place in places if place not in arrived]
    if not missing:
        return f"A gradient arrives at all {len(places)} places"
    return f"Gradients arrive at {len(arrived)} of {len(places)} places, none at {listed(missing, 'places')}"
