"""Panel 4, what would make it fit: a training step against a card, over estimates that were made before."""

import html

import ipywidgets as ipw

from course.demo.chart import LETTERS, LIMIT, StageChart, axis, layout
from course.demo.panel import Tell, choice, row, slider
from tlkit.reports.palette import COLOURS, INK, KINDS

CARDS = (4, 6, 8, 12, 16, 24, 40, 80)  # GiB


def fitting_figure(point, gigabytes: int) -> tuple[dict, str]:
    """The bytes of a step as a stacked bar, with what is usable of the card as a line; and whether it fits, in words.

    Args:
        point: of the grid.
        gigabytes: of the card.
    """
    from tlkit.fitting.grid import in_words, memory_grid, way_to_fit
    from tlkit.names import CARD_SHARE

    grid, budget = memory_grid(), gigabytes * 2**30
    way = way_to_fit(point, budget)
    bars = {"as chosen": grid[point]}
    if way not in (None, point):
        bars["as proposed"] = grid[way]
    usable = CARD_SHARE * gigabytes
    # The axis follows the model and not the switches, so that a bar that shrinks is seen to shrink.
    of_model = max(estimate.peak for other, estimate in grid.items() if other.model == point.model)
    top = max(1.02 * of_model / 2**30, 1.25 * usable) if usable < of_model / 2**30 else 1.25 * gigabytes
    names = list(bars)
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": kind,
            "y": names,
            "x": [estimate.categories[kind] / 2**30 for estimate in bars.values()],
            "marker": {"color": COLOURS[place], "line": {"color": "white", "width": 1}},
            "hovertemplate": f"{kind}: %{{x:.2f}} GiB<extra></extra>",
        }
        for kind, place in KINDS.items()
    ]
    line = {"type": "line", "x0": usable, "x1": usable, "y0": -0.02, "y1": 1.0, "xref": "x", "yref": "paper"}
    totals = [
        {"x": estimate.peak / 2**30, "y": name, "text": f"<b>{estimate.peak / 2**30:.1f} GiB</b>", "showarrow": False}
        | {"xanchor": "left", "xshift": 8, "bgcolor": "rgba(255,255,255,0.85)"}
        for name, estimate in bars.items()
    ]
    right = usable > 0.62 * top
    limit = {"x": usable, "y": 1.0, "yref": "paper", "yanchor": "bottom", "showarrow": False}
    limit |= {"xanchor": "right" if right else "left", "text": f"usable of {gigabytes} GiB: {usable:.1f} GiB"}
    drawn = layout(
        1210,
        360,
        barmode="stack",
        bargap=0.35,
        margin={"l": 10, "r": 20, "t": 36, "b": 60},
        showlegend=True,
        legend={
            "orientation": "h",
            "x": 0,
            "y": -0.32,
            "yanchor": "top",
            "traceorder": "normal",
            "font": {"size": LETTERS},
        },
        shapes=[line | {"line": {"color": LIMIT, "width": 4, "dash": "dash"}}],
        annotations=[*totals, limit | {"font": {"color": LIMIT, "size": LETTERS, "weight": 700}}],
        xaxis=axis("peak of a training step (GiB)", range=[0, 1.12 * top], automargin=True),
        yaxis=axis(range=[1.5, -0.5], tickvals=names, automargin=True, ticks="", showgrid=False, color=INK),
    )
    return {"data": data, "layout": drawn}, " ".join(in_words(point, budget))


def build(tell: Tell) -> ipw.Widget:
    """Make the panel.

    Args:
        tell: says what is being done.
    """
    tell("reading the recorded estimates")
    from tlkit.fitting.grid import CHOICES, GridPoint, in_words, memory_grid

    grid = memory_grid()
    card = slider("Card", [(f"{size} GiB", size) for size in CARDS], 8, "560px")
    micro = slider("Micro-batch", list(CHOICES["micro_batch_size"]), 8, "560px")
    model = choice("Model", list(CHOICES["model"]), "qwen2-0.5b", "400px")
    strategy = choice("Strategy", list(CHOICES["strategy"]), "full", "400px")
    names = {
        "dtype": "Weights in bf16",
        "activation_checkpointing": "Activation checkpointing",
        "chunked_loss": "Chunked loss",
    }
    switches = {
        name: ipw.ToggleButton(value=False, description=label, layout={"width": "auto"})
        for name, label in names.items()
    }
    take = ipw.Button(description="Take the proposal", layout={"width": "auto"})
    take.add_class("stage-space")
    verdict, chart = ipw.HTML(), StageChart()
    quiet = False

    def point() -> GridPoint:
        return GridPoint(
            model.value,
            strategy.value,
            "bf16" if switches["dtype"].value else "fp32",
            micro.value,
            switches["activation_checkpointing"].value,
            switches["chunked_loss"].value,
        )

    def update(change: object = None) -> None:
        if quiet:
            return
        first, second = in_words(point(), card.value * 2**30, grid)
        kind = "good" if first.startswith("It fits") else "bad"
        verdict.value = (
            f'<p role="status" class="stage-verdict {kind}"><b>{html.escape(first)}</b><br>{html.escape(second)}</p>'
        )
        take.disabled = kind == "good" or second.startswith("No setting")
        chart.show(*fitting_figure(point(), card.value))

    def accept(clicked: object) -> None:
        nonlocal quiet
        from tlkit.fitting.grid import way_to_fit

        way, quiet = way_to_fit(point(), card.value * 2**30, grid), True
        strategy.value, micro.value = way.strategy, way.micro_batch_size
        switches["dtype"].value = way.dtype == "bf16"
        for name in ("activation_checkpointing", "chunked_loss"):
            switches[name].value = getattr(way, name)
        quiet = False
        update()

    for control in (card, micro, model, strategy, *switches.values()):
        control.observe(update, "value")
    take.on_click(accept)
    update()
    return ipw.VBox([row(model, strategy), row(card, micro), row(*switches.values(), take), verdict, chart])
