"""Profile, seed, threads, quiet libraries: everything a lesson decides before it starts."""

import gc
import logging
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tlkit.corpus import Corpus

# In the repository the data lie beside the package, in a wheel inside it.
DATA = next(
    (folder for folder in (Path(__file__).parent / "data", Path(__file__).parents[1] / "data") if folder.is_dir()),
    Path(__file__).parents[1] / "data",
)


@dataclass(frozen=True)
class Profile:
    """How much work a notebook run may do.

    `train_passages` and `test_passages` bound the documents used (None: all), `questions` those of each set that a
    comparison asks (None: all); `epochs` and `seeds` are what lessons and comparisons use by default. `ci` is made for
    the bundled model and `real` for a model of a hundred million values on a laptop.
    """

    name: str
    train_passages: int | None
    test_passages: int | None
    epochs: float
    seeds: int
    questions: int | None = 0

    def limit(self, corpus: "Corpus") -> "Corpus":
        """The documents of a corpus that this profile trains on and scores.

        Args:
            corpus: all documents.

        Returns:
            The first `train_passages` documents of the training split and the first `test_passages` of the others.
        """
        return corpus.limited(self.train_passages, self.test_passages)


# The model that `ci` trains can only guess answers: its few questions show the columns, and cost a tenth of a run.
PROFILES = {
    "ci": Profile("ci", train_passages=60, test_passages=40, epochs=1, seeds=3, questions=10),
    "real": Profile("real", train_passages=200, test_passages=40, epochs=1, seeds=3, questions=None),
    "laptop": Profile("laptop", train_passages=None, test_passages=None, epochs=2, seeds=3, questions=None),
    "gpu": Profile("gpu", train_passages=None, test_passages=None, epochs=3, seeds=5, questions=None),
}


def setup(profile: str | None = None, *, seed: int = 0, threads: int | None = None) -> Profile:
    """Make a run repeatable and quiet.

    Args:
        profile: a name in `PROFILES`; None for `TLKIT_PROFILE`, else "ci".
        seed: of torch's random numbers.
        threads: of torch; None leaves them as they are.

    Returns:
        The profile.

    Raises:
        ValueError: for an unknown profile, or fewer than one thread.
    """
    name = profile or os.environ.get("TLKIT_PROFILE") or "ci"
    if name not in PROFILES:
        raise ValueError(f"profile {name!r} is unknown: expected one of {', '.join(PROFILES)} (see TLKIT_PROFILE)")
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads}: expected at least 1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    import torch
    from huggingface_hub.utils import enable_progress_bars
    from transformers.utils import logging as of_transformers

    # peft still asks for a name that transformers 5 has replaced; nothing a reader could do about it.
    warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")
    # Where a prompt is learned, peft counts positions itself; it says so at every text that is written.
    warnings.filterwarnings("ignore", message="Position ids are not supported")
    of_transformers.set_verbosity_error()
    of_transformers.disable_progress_bar()  # of weights being loaded, a second on disk; downloads keep theirs
    enable_progress_bars()
    # On CPUs with bf16 it asks for a package that would fetch its code from the network; qlora works without.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    # The hundred thousands of objects that the libraries have made stay: the garbage collector need not look at them
    # again and again, which is most of its time where memory runs out (see `out_of_memory.catch_out_of_memory`).
    gc.collect()
    gc.freeze()
    torch.manual_seed(seed)
    if threads:
        torch.set_num_threads(threads)
    return PROFILES[name]
