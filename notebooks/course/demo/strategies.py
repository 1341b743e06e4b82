"""Panel 2, what a strategy trains: parts of the model light up; trained values, share and memory are counted."""

import html

import ipywidgets as ipw

from course.demo.chart import StageChart, axis, layout
from course.demo.panel import Tell, choice, row
from tlkit.reports.palette import COLOURS, KINDS

MODELS = ("tiny", "smollm2-135m", "qwen2-0.5b")
GRADIENT_BYTES, OPTIMIZER_BYTES = (4, 8)  # of a trained value in fp32: its gradient, and AdamW's two averages


def training_bytes(report) -> dict[str, int]:
    """What training adds to the weights, apart from activations: bytes of gradients and of AdamW's state, in fp32.

    Args:
        report: what `apply_strategy` returned.
    """
    return {
        "gradients": GRADIENT_BYTES * report.trainable_values,
        "optimizer state": OPTIMIZER_BYTES * report.trainable_values,
    }


def strip(report) -> str:
    """The parts of a model from the embedding to the head as boxes, for a page.

    Args:
        report: what `apply_strategy` returned.
    """
    from tlkit.reports.diagrams import MOST_PLACES, merged, places_of
    from tlkit.reports.findings import short

    places = places_of(report)
    if len(places) > MOST_PLACES:
        places = merged(places)
    boxes = []
    for place in places:
        trains = place.trained + place.adapter
        whole = bool(place.trained) and place.trained >= place.total
        part = " part" if place.trained and not whole else ""
        kind = "trained" if whole else "passed" if place.reached else "spared"
        share = f"{trains:,} values trained" if trains else "nothing trained"
        own = "the same matrix as the embedding" if place.name == "head" and not place.total else share
        told = "tied" if place.name == "head" and not place.total else short(trains) if trains else "–"
        adapter = '<i class="stage-adapter"></i>' if place.adapter else ""
        wide = 1 if place.name.isdigit() else 1.0 if place.name in ("norm", "head") else 1.5 if place.parts == 1 else 3
        boxes.append(
            f'<div class="stage-place" style="flex:{wide}" tabindex="0" role="img" title="{place.name}: {own}" '
            f'aria-label="{place.name}: {own}">{adapter}<div class="stage-box {kind}{part}">'
            f"<span>{html.escape(place.name)}</span></div><small>{told}</small></div>"
        )
    legend = {
        "trained": "trained",
        "adapter": "adapter, trained",
        "passed": "frozen, the gradient passes through",
        "spared": "frozen, not reached",
    }
    keys = "".join(f'<span><i class="stage-key {kind}"></i>{said}</span>' for kind, said in legend.items())
    return f'<div class="stage-strip">{"".join(boxes)}</div><div class="stage-legend">{keys}</div>'


def counts(report) -> str:
    """The counts of a strategy as large numbers, for a page.

    Args:
        report: what `apply_strategy` returned.
    """
    from tlkit.memory import in_units

    added = training_bytes(report)
    numbers = {
        f"of {report.total_values:,} values trained": f"{report.trainable_values:,}",
        "of all values": f"{report.percent:.3g}%",
        "for gradients": in_units(added["gradients"]),
        "for AdamW's averages": in_units(added["optimizer state"]),
    }
    cells = "".join(f"<div><b>{number}</b><span>{of}</span></div>" for of, number in numbers.items())
    return f'<div class="stage-numbers" aria-live="polite">{cells}</div>'


def memory_figure(reports: dict, chosen: str) -> tuple[dict, str]:
    """What each strategy adds to memory as bars; those that are not chosen are pale.

    Args:
        reports: by strategy what `apply_strategy` returned.
        chosen: the strategy.
    """
    from tlkit.memory import in_units

    added = {name: training_bytes(report) for name, report in reports.items()}
    largest = max(sum(sizes.values()) for sizes in added.values())
    unit, divisor = ("GiB", 2**30) if largest >= 2**30 else ("MiB", 2**20)
    names = list(added)
    opacity = [1 if name == chosen else 0.35 for name in names]
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": kind,
            "y": names,
            "x": [added[name][kind] / divisor for name in names],
            "marker": {"color": COLOURS[KINDS[kind]], "opacity": opacity},
            "hovertemplate": f"{kind} with %{{y}}: %{{x:.2f}} {unit}<extra></extra>",
        }
        for kind in ("gradients", "optimizer state")
    ]
    drawn = layout(
        1210,
        330,
        f"What training adds to the weights ({unit} in fp32)",
        barmode="stack",
        bargap=0.2,
        showlegend=True,
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        xaxis=axis(range=[0, 1.05 * largest / divisor], automargin=True),
        yaxis=axis(autorange="reversed", automargin=True, ticks="", dtick=1, showgrid=False),
    )
    words = f"{chosen} adds {in_units(sum(added[chosen].values()))} of gradients and optimizer state."
    return {"data": bars, "layout": drawn}, words


def build(tell: Tell) -> ipw.Widget:
    """Make the panel.

    Args:
        tell: says what is being done.
    """
    tell("counting the values of each strategy")
    from course.panels import strategy_report
    from tlkit.names import CLASSIC

    model = choice("Model", list(MODELS), MODELS[0], "270px")
    strategy = ipw.ToggleButtons(options=list(CLASSIC), value="full", style={"button_width": "auto"})
    numbers, boxes, memory = ipw.HTML(), ipw.HTML(), StageChart()
    known: dict[str, dict] = {}

    def reports(name: str) -> dict:
        """Of each strategy that this model can have; counted once."""
        if name not in known:
            known[name] = {}
            for one in CLASSIC:
                try:
                    known[name][one] = strategy_report(name, one)
                except ValueError as error:  # bitfit, where there are no biases
                    known[name][one] = str(error)
        return known[name]

    def update(change: object = None) -> None:
        found = reports(model.value)[strategy.value]
        if isinstance(found, str):
            numbers.value = f'<p role="status" class="stage-said bad">{html.escape(found)}</p>'
            boxes.value = ""
            return
        numbers.value, boxes.value = counts(found), strip(found)
        able = {name: report for name, report in reports(model.value).items() if not isinstance(report, str)}
        memory.show(*memory_figure(able, strategy.value))

    for control in (model, strategy):
        control.observe(update, "value")
    update()
    return ipw.VBox([row(model, strategy), boxes, numbers, memory])
