"""Which parts of a model a strategy trains, how far down the gradient travels, and what training adds to memory."""

import html
from functools import cache

from course.drawing import ADAPTER, PASSED, SPARED, TRAINED
from course.panels.views import Panel, View, choice, on_change, row
from course.strip import MOST_PLACES, Place, merged, places_of
from tlkit.memory import in_units
from tlkit.models import meta_model
from tlkit.names import CLASSIC
from tlkit.presets import PRESETS
from tlkit.reports.figure import INK, short
from tlkit.strategies import StrategyReport, apply_strategy

GRADIENT_BYTES, OPTIMIZER_BYTES = 4, 8  # of a trained value in fp32: its gradient, and AdamW's two averages
KINDS = {  # of a part: what its box is filled with
    "trained": TRAINED,
    "trained in part": f"linear-gradient(to top, {TRAINED} 30%, {PASSED} 30%)",
    "frozen, the gradient passes through": PASSED,
    "frozen, not reached": SPARED,
    "adapter, trained": ADAPTER,
}


@cache
def strategy_report(model: str, strategy: str) -> StrategyReport:
    """Count what a strategy trains in a preset, without weights.

    Args:
        model: a preset.
        strategy: what is trained.

    Raises:
        ValueError: for an unknown preset or strategy, and for a strategy that trains nothing in this model.
    """
    return apply_strategy(meta_model(model), strategy)


def training_bytes(report: StrategyReport) -> dict[str, int]:
    """What training adds to the weights, apart from activations: bytes of gradients and of AdamW's state, in fp32.

    Args:
        report: what `apply_strategy` returned.
    """
    return {
        "gradients": GRADIENT_BYTES * report.trainable_parameters,
        "optimizer state": OPTIMIZER_BYTES * report.trainable_parameters,
    }


def strategy_view(report: StrategyReport) -> View:
    """Draw the parts of a model from the embedding to the head as boxes; each says its counts to mouse and keyboard.

    Args:
        report: what `apply_strategy` returned.
    """
    places = places_of(report)
    places = merged(places) if len(places) > MOST_PLACES else places
    drawn = {_kind(place) for place in places} | {"adapter, trained" for place in places if place.adapter}
    keys = "".join(
        f'<span style="margin-right:1.5em"><i style="display:inline-block;width:1em;height:.8em;border:1px solid {INK};'
        f'background:{fill};margin-right:.4em"></i>{kind}</span>'
        for kind, fill in KINDS.items()
        if kind in drawn
    )
    boxes = f'<div style="display:flex;gap:.25em;align-items:flex-end">{"".join(map(_box, places))}</div>'
    added = {name: in_units(size) for name, size in training_bytes(report).items()}
    memory = f"Training adds {added['gradients']} of gradients and {added['optimizer state']} of AdamW's averages."
    return View(f"{report} {memory}", page=f'<div style="color:{INK}">{boxes}<div>{keys}</div></div>')


def strategy_map() -> Panel:
    """Show which parts of a model a strategy trains; from code: `strategy_view(strategy_report(model, strategy))`."""
    model, strategy = choice("Model", list(PRESETS), "tiny"), choice("Strategy", list(CLASSIC), "full")
    panel = Panel(row(model, strategy))

    def update() -> None:
        with panel.working("counting"):
            panel.show(strategy_view(strategy_report(model.value, strategy.value)))

    on_change(update, model, strategy)
    update()
    return panel


def _kind(place: Place) -> str:
    if place.trained:
        return "trained" if place.trained >= place.total else "trained in part"
    return "frozen, the gradient passes through" if place.reached else "frozen, not reached"


def _box(place: Place) -> str:
    trained, is_tied = place.trained + place.adapter, place.name == "head" and not place.total
    words = "the same matrix as the embedding" if is_tied else f"{trained:,} of {place.total + place.adapter:,} trained"
    number = "tied" if is_tied else short(trained) if trained else "–"
    edge = f'<i style="display:block;height:.6em;border:1px solid {INK};background:{ADAPTER}"></i>'
    adapter = edge if place.adapter else ""
    ink = "white" if _kind(place) == "trained" else INK
    width = 1 if place.name.isdigit() else 1.5 if place.parts == 1 else 3
    return (
        f'<div tabindex="0" role="img" title="{place.name}: {words}" aria-label="{place.name}: {words}" '
        f'style="flex:{width};min-width:0;text-align:center">{adapter}<div style="height:3em;line-height:3em;'
        f"overflow:hidden;white-space:nowrap;border:1px solid {INK};border-radius:.25em;color:{ink};"
        f'background:{KINDS[_kind(place)]}">{html.escape(place.name)}</div><small>{number}</small></div>'
    )
