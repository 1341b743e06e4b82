"""A model from its embedding to its head as a strip of boxes: what a strategy trains, and how far gradients go.

A filled box is trained, a hatched one is frozen but backpropagation passes through it, a pale one is frozen and spared,
and an orange edge is an adapter.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from course.drawing import ADAPTER, BEHIND, GRADIENT, PASSED, SPARED, TRAINED, arrow, box, paper
from tlkit.models.parts import adapter_names, base_model, find_blocks, is_tied, learns_prefix, original_module_of
from tlkit.quantization import logical_size
from tlkit.reports.figure import INK, Chart, described, headline, short
from tlkit.strategies import StrategyReport, component_of

MOST_PLACES = 14  # that are drawn one by one; in a deeper network, equal neighbours are drawn as one


@dataclass(frozen=True)
class Place:
    """One box of a network strip: a part of the model, or several equal ones side by side."""

    name: str
    trained: int  # values
    total: int
    adapter: int  # values of the adapters beside it, all trained
    reached: bool  # by backpropagation
    parts: int = 1

    @property
    def like(self) -> tuple:
        """What makes two neighbours equal to the reader."""
        return self.trained, self.total, self.adapter, self.reached


def places_of(report: StrategyReport) -> list[Place]:
    """A place for the embedding, each block, the final norm and the head; a tied head has no values of its own."""
    trained, frozen = Counter(), Counter()
    for name, values, trains in _adapter_values(report):
        (trained if trains else frozen)[name] += values
    places = []
    for name, part in report.components.items():
        if name != "adapters":
            short = {"final norm and others": "norm"}.get(name, name.removeprefix("block "))
            places.append([short, part.trainable_parameters, part.total_parameters + frozen[name], trained[name]])
    if is_tied(base_model(report.model)):
        places.append(["head", places[0][1], 0, 0])
    # The head is listed behind the final norm, through which it is reached.
    places.sort(key=lambda place: {"norm": 1, "head": 2}.get(place[0], 0))
    lowest = min(place for place, (_, trained, _, adapter) in enumerate(places) if trained or adapter)
    return [Place(*values, place >= lowest) for place, values in enumerate(places)]


@described
def network_strip(*reports: StrategyReport, names: Sequence[str] = ()) -> Chart:
    """What each strategy trains from the embedding to the head, and how far down backpropagation has to go.

    Args:
        *reports: what `apply_strategy` returned; one strip each.
        names: written over the strips; by default those of the strategies.
    """
    names = names or [report.strategy for report in reports]
    figure, axes = paper(1.0 + 1.55 * len(reports), 1.02, 1.05, left=-0.02, bottom=-1.9 * (len(reports) - 1) - 0.85)
    for row, (report, name) in enumerate(zip(reports, names, strict=True)):
        _draw_strip(axes, report, name, -1.9 * row)
    figure.words = tuple(_in_words(report, name) for report, name in zip(reports, names, strict=True))
    drawn = {(patch.get_facecolor(), patch.get_hatch()) for patch in axes.patches}
    styles = {
        "trained": {"facecolor": TRAINED},
        "adapter, trained": {"facecolor": ADAPTER},
        "frozen, backpropagation passes through": {"facecolor": PASSED, "hatch": "//"},
        "frozen, not reached": {"facecolor": SPARED},
    }
    kinds = {name: Patch(edgecolor=INK, **style) for name, style in styles.items()}
    kinds = {name: patch for name, patch in kinds.items() if (patch.get_facecolor(), patch.get_hatch()) in drawn}
    figure.legend(kinds.values(), kinds, loc="outside lower center", ncols=len(kinds), fontsize="small", frameon=False)
    headline(figure, _finding(reports, names))
    return figure


def _finding(reports: Sequence[StrategyReport], names: Sequence[str]) -> str:
    """How much is trained, and how far backpropagation goes with each."""
    reached: dict[str, list[str]] = {}
    for report, name in zip(reports, names, strict=True):
        parts = [place.reached for place in places_of(report)]
        count = "every part" if all(parts) else f"{sum(parts)} of {len(parts)} parts"
        reached.setdefault(count, []).append(name)
    shares = [
        "every parameter" if report.percent == 100 else f"{report.percent:.2g}% of the parameters" for report in reports
    ]
    if len(reports) == 1:
        return f"{names[0]} trains {shares[0]}, and backpropagation passes through {next(iter(reached))}"
    trained = ", ".join(f"{name} trains {share}" for name, share in zip(names, shares, strict=True))
    passes = ", ".join(f"{count} with {' and '.join(some)}" for count, some in reached.items())
    return f"{trained}; backpropagation passes through {passes if len(reached) > 1 else next(iter(reached))}"


def _in_words(report: StrategyReport, name: str) -> str:
    """What a strip says, for those who cannot see it."""
    places = merged(places_of(report))
    trained = ", ".join(place.name for place in places if place.trained or place.adapter)
    lowest = next(place.name for place in places if place.reached)
    count = short(report.trainable_parameters)
    return f"{name} trains {count} parameters ({trained}); backpropagation goes down to {lowest}"


def _draw_strip(axes: Axes, report: StrategyReport, name: str, base: float) -> None:
    """One strip between 0 and 1 on the horizontal axis, its boxes from `base` to `base` + 0.5."""
    places = places_of(report)
    if len(places) > MOST_PLACES:
        places = merged(places)
    widths = [_width(place) for place in places]
    unit, left = 1 / sum(widths), 0.0
    edges = []
    for place, width in zip(places, widths, strict=True):
        _draw_place(axes, place, left + 0.06 * unit, base, (width - 0.12) * unit)
        edges.append(left)
        left += width * unit
    share = f"{report.percent:.2g}%" if report.percent < 99.95 else "all"
    axes.text(0, base + 0.86, name, fontsize="large", fontweight="bold", color=INK, va="center")
    trained, total = map(short, (report.trainable_parameters, report.total_parameters))
    caption = f"{trained} of {total} parameters trained ({share})"
    axes.text(1, base + 0.86, caption, fontsize="small", color=INK, ha="right", va="center")
    lowest = min(edge for edge, place in zip(edges, places, strict=True) if place.reached)
    arrow(axes, (1, base - 0.42), (lowest, base - 0.42), shade=GRADIENT, linewidth=2)
    axes.text(1, base - 0.47, "backpropagation", color=GRADIENT, fontsize="small", ha="right", va="top")


def _width(place: Place) -> float:
    """In blocks; the norm is narrow, since it holds next to nothing."""
    return 1 if place.name.isdigit() else 0.78 if place.name == "norm" else 1.6 + (place.parts > 2)


def _draw_place(axes: Axes, place: Place, left: float, base: float, width: float) -> None:
    """A box, its name in it, and below it what is trained there."""
    whole = place.trained and place.trained >= place.total
    shade = TRAINED if whole else PASSED if place.reached else SPARED
    hatch = {"hatch": "//"} if place.reached and not whole else {}
    box(axes, (left, base), width, 0.5, facecolor=shade, rounding=0.008, **hatch)
    if place.trained and not whole:  # a stripe at the foot: some values of this part are trained
        axes.add_patch(Rectangle((left, base), width, 0.09, facecolor=TRAINED, edgecolor="none"))
    if place.adapter:
        axes.add_patch(Rectangle((left, base + 0.5), width, 0.11, facecolor=ADAPTER, edgecolor=INK))
    name = {"embedding": "embed-\nding"}.get(place.name, place.name)
    style = {"color": "white"} if whole else {"color": INK, "bbox": BEHIND}
    axes.text(left + width / 2, base + 0.27, name, ha="center", va="center", fontsize="small", **style)
    caption = "same\nmatrix" if place.name == "head" and not place.total else short(place.trained + place.adapter)
    axes.text(left + width / 2, base - 0.06, caption, ha="center", va="top", color=INK, fontsize="x-small")


def _adapter_values(report: StrategyReport) -> Iterator[tuple[str, int, bool]]:
    """Each tensor of an adapter: the component that it stands beside, its values, and whether they are trained."""
    model, added = report.model, adapter_names(report.model)
    owners, base = component_of(base_model(model)), base_model(model)
    beside: dict[int, str] = {}
    for module in model.modules():
        wrapped = original_module_of(module)
        components = [owners[id(p)] for p in wrapped.parameters() if id(p) in owners] if wrapped is not None else []
        beside |= {id(parameter): components[0] for parameter in module.parameters() if components}
    for name, parameter in model.named_parameters():
        if name not in added:
            continue
        if id(parameter) in beside:
            yield beside[id(parameter)], logical_size(parameter), parameter.requires_grad
        elif not learns_prefix(model):  # a learned prompt, which stands where tokens do
            yield "embedding", parameter.numel(), parameter.requires_grad
        else:  # keys and values of every block, in one tensor
            blocks = len(find_blocks(base))
            for number in range(blocks):
                yield f"block {number}", parameter.numel() // blocks, parameter.requires_grad


def merged(places: list[Place]) -> list[Place]:
    """Make equal neighbouring blocks one place, whose values are those of all of them."""
    runs: list[list[Place]] = []
    for place in places:
        if runs and place.name.isdigit() and runs[-1][0].name.isdigit() and runs[-1][0].like == place.like:
            runs[-1].append(place)
        else:
            runs.append([place])
    return [
        Place(
            run[0].name if len(run) == 1 else f"blocks {run[0].name} {'and' if len(run) == 2 else 'to'} {run[-1].name}",
            sum(place.trained for place in run),
            sum(place.total for place in run),
            sum(place.adapter for place in run),
            run[0].reached,
            len(run),
        )
        for run in runs
    ]
