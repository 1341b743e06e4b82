"""A training that runs out of memory on a small card, and what it tries until a step holds."""

import re
from collections.abc import Sequence

from course.panels.views import Panel, View, button, new_figure, row
from tlkit.corpus import load_corpus, pack
from tlkit.fitting.fallback import LADDER, Attempt, FallbackLog, train_with_fallback
from tlkit.memory import in_units, parse_size, virtual_device
from tlkit.models import load_model
from tlkit.reports.figure import COLOURS, INK
from tlkit.settings import TrainingConfig
from tlkit.strategies import apply_strategy

MEMORY = "48MiB"
ROWS, TOKENS = 4, 64  # of a batch of the training that runs out of memory


def fallback_run(memory: str = MEMORY, strategy: str = "full") -> FallbackLog:
    """Train the bundled model for two steps on a small virtual card, and try each rung after a real failure.

    Args:
        memory: of the card, such as "48MiB".
        strategy: what is trained.

    Raises:
        ValueError: for a size that cannot be read, or an unknown strategy.
    """
    loaded = load_model("tiny")
    blocks = pack(load_corpus("rust").train[:20], loaded.tokenizer, TOKENS)[: 2 * ROWS]
    model = apply_strategy(loaded.model, strategy).model
    order = [name for name in LADDER if name not in ("bf16 autocast", "activations on the host")]
    device, config = virtual_device(memory=memory), TrainingConfig(batch_size=ROWS)
    return train_with_fallback(model, blocks, config, device=device, order=tuple(order))[1]


def ladder_views(log: FallbackLog) -> list[View]:
    """Show a fallback attempt by attempt.

    Args:
        log: what `train_with_fallback` returned.

    Returns:
        A view for each attempt, in which all attempts before it are drawn, too.

    Raises:
        ValueError: for a log without an attempt at training.
    """
    tries = [attempt for attempt in log.attempts if attempt.action == "training"]
    if not tries:
        raise ValueError("no training was tried: expected the log of train_with_fallback")
    return [_view(tries, number) for number in range(1, len(tries) + 1)]


def ladder_player(log: FallbackLog | None = None) -> Panel:
    """Step through a fallback; from code: `ladder_views(log)`.

    Args:
        log: what `train_with_fallback` returned (None: one is made on a card of 48 MiB, which takes some seconds).
    """
    views: list[View] = []
    place = -1

    def go(to: int) -> None:
        nonlocal place
        with panel.working("" if views else "training on a card of 48 MiB, some seconds"):
            if not views:
                views.extend(ladder_views(fallback_run() if log is None else log))
            place = min(max(to, 0), len(views) - 1)
            back.disabled, on.disabled = place == 0, place == len(views) - 1
            panel.show(views[place])

    back = button("Back", "The attempt before", lambda: go(place - 1))
    on = button("Next attempt", "What training tried next", lambda: go(place + 1), space=True)
    back.disabled = True
    panel = Panel(row(back, on))
    panel.say("Nothing tried yet.")
    if log is not None:
        go(0)
    return panel


def _view(tries: Sequence[Attempt], number: int) -> View:
    """Attempts up to a number, on axes that have room for all of them."""
    attempt = tries[number - 1]
    said = f"Attempt {number} of {len(tries)}, {attempt.rung}: "
    if attempt.failed_in:
        asked, free = in_units(attempt.bytes_asked), in_units(attempt.bytes_available)
        said += f"failed in the {attempt.failed_in}, at step {attempt.first_step}. Asked for {asked}, free {free}."
    else:
        said += f"it holds, and does {attempt.steps_done} steps from step {attempt.first_step} on."
    figure, (axes,) = new_figure(1.1 + 0.21 * len(tries))
    limit = _limit(tries)
    for place, one in enumerate(tries[:number]):
        held = one.peak if not (one.failed_in and limit) else limit - one.bytes_available
        axes.barh(place, held / 2**20, color=COLOURS[1] if one.failed_in else COLOURS[2], edgecolor=INK)
        if one.failed_in and limit:
            wanted = {"facecolor": "none", "edgecolor": COLOURS[1], "linestyle": ":", "linewidth": 2}
            axes.barh(place, one.bytes_asked / 2**20, left=held / 2**20, **wanted)
        ended = f"fails in the {one.failed_in}" if one.failed_in else f"holds: {held / 2**20:.0f} MiB"
        axes.annotate(f" {ended}", (0, place), va="center", color="white", fontweight="bold")
    if limit:
        axes.axvline(limit / 2**20, color=INK, linestyle="--", linewidth=2)
        axes.set_title(f"limit of the card: {limit / 2**20:.0f} MiB", fontsize="medium", fontweight="bold")
        axes.set_xlim(0, 1.15 * limit / 2**20)
    axes.set_yticks(range(len(tries)), [f"{place}. {one.rung}" for place, one in enumerate(tries, 1)])
    axes.set_ylim(len(tries) - 0.5, -0.5)
    axes.set_xlabel("held on the card (MiB); dotted: asked for when memory ran out")
    return View(said, figure)


def _limit(tries: Sequence[Attempt]) -> int | None:
    """Bytes of the card that attempts name as their device, as in "virtual card of 48MiB"."""
    sizes = [re.search(r"\d+(?:\.\d+)? ?[MG]i?B", attempt.device) for attempt in tries]
    return next((parse_size(size.group()) for size in sizes if size), None)
