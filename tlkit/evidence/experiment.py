"""What all runs of a comparison or a search have in common, and how one of them is carried out."""

import datetime
import math
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TypeVar

import torch
import transformers
from transformers import PretrainedConfig

from tlkit.checkpoints import hash_of
from tlkit.corpus import Corpus
from tlkit.devices import Device, probe, settled_precision
from tlkit.evaluation import WINDOW, PerplexityResult
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.tasks import LONGEST_ROW, TASKS, Account, Measured, Task, account, limited
from tlkit.examples import Batch, tensors_in
from tlkit.fitting.fallback import FallbackLog, evaluate_with_fallback, train_with_fallback
from tlkit.jobs import SILENT, Part
from tlkit.memory import VirtualDevice, virtual_device
from tlkit.models import LoadedModel, agreed_classes, chosen_model, load_model, meta_model
from tlkit.models.parts import longest_input
from tlkit.models.prefix import LIMIT, NoFrozenPrefix, cached_prefix
from tlkit.names import CONTROL
from tlkit.settings import Plan, Profile, TrainingConfig
from tlkit.strategies import StrategyReport, apply_strategy, dtype_of_weights, strategies_named
from tlkit.training import TrainingResult, total_steps, train

T = TypeVar("T")


@dataclass(frozen=True)
class Experiment:
    """Model, task, texts, blocks and window: what decides a run's numbers beside its strategy, rate and seed."""

    task: Task
    model: str
    tokenizer: object
    profile: Profile
    whole: Corpus  # all its documents; `corpus` has those of the profile
    corpus: Corpus
    general: Corpus
    blocks: Batch  # of the training split: token ids, shape (blocks, block_size), or examples
    classes: tuple[str, ...] | None  # their names, where the task has some
    account: Account  # what became of the documents
    batch_size: int
    precision: str  # of the arithmetic: fp32 or bf16
    context: int
    stride: int
    device_memory: str | None  # of a virtual card
    fallback: bool
    weights_sha256: str
    text_sha256: str

    @property
    def settings(self) -> dict[str, object]:
        """Everything that the numbers depend on, in plain values: two runs may be compared where these are equal."""
        return {
            **({} if self.task.name == "text" else {"task": self.task.name}),
            "weights_sha256": self.weights_sha256,
            "corpus": self.corpus.name,
            "corpus_sha256": self.whole.sha256,
            "text_sha256": self.text_sha256,
            "profile": self.profile.name,
            "train_documents": len(self.corpus.train),
            "test_documents": len(self.corpus.test),
            "epochs": self.profile.epochs,
            "block_size": self.blocks.shape[1],
            "batch_size": self.batch_size,
            "context": self.context,
            "stride": self.stride,
            "device": self.device().name if self.device_memory else self.device().kind,
            "fallback": self.fallback,
            **({} if self.precision == "fp32" else {"precision": self.precision}),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "peft": version("peft"),
        }

    @property
    def provenance(self) -> dict[str, object]:
        """Where, when and with what a run was made, its settings included."""
        device = self.device()
        return {
            "model": self.model,
            **self.settings,
            "device": device.name if self.device_memory else f"{device.kind}: {device.name}",
            "precision": self.precision,
            "date": now(),
            "python": platform.python_version(),
        }

    @property
    def class_count(self) -> int | None:
        """How many classes there are; None for a language model."""
        return None if self.classes is None else len(self.classes)

    @property
    def config(self) -> TrainingConfig:
        """What every run trains towards, but for its rate and seed."""
        return TrainingConfig(epochs=self.profile.epochs, batch_size=self.batch_size)

    @property
    def steps(self) -> int:
        """Optimizer steps of a run."""
        return total_steps(len(self.blocks), self.config)

    @property
    def keeps_prefix(self) -> bool:
        """Whether a frozen prefix is computed once: not where memory is what is tried out."""
        return not (self.fallback or self.device_memory)

    def texts(self, split: str) -> dict[str, tuple[object, ...]]:
        """What a model is scored on: documents of the corpus, and the general ones where there are some."""
        texts = {name: getattr(getattr(self, name), split) for name in ("corpus", "general")}
        return {name: documents for name, documents in texts.items() if documents}

    def score(
        self, model: torch.nn.Module, documents: tuple[object, ...], progress: Part, batch_size: int = 8
    ) -> PerplexityResult:
        """How well a model does on documents of the task, so many rows at a time."""
        # A learned prompt takes up a part of what the model can read, and the windows are shorter for it.
        context = min(self.context, longest_input(model) or self.context)
        window = {"context": context, "stride": min(self.stride, context), "batch_size": batch_size}
        return self.task.score(model, self.tokenizer, documents, window, self.classes, progress)

    def measure(self, model: torch.nn.Module, documents: tuple[object, ...], progress: Part) -> Measured:
        """What the task measures beside."""
        return self.task.measure(model, self.tokenizer, documents, self.profile, self.classes, progress)

    def evaluate(
        self,
        action: Callable[[int], T],
        model: torch.nn.Module,
        *,
        rows: int = 8,
        device: Device | VirtualDevice | None = None,
        log: FallbackLog | None = None,
    ) -> T:
        """What `action` returns for so many rows at a time; with fallback, for fewer where memory runs out."""
        if not self.fallback:
            return action(rows)
        return evaluate_with_fallback(action, model, batch_size=rows, device=device, log=log)

    def device(self) -> Device | VirtualDevice:
        """Where a run takes place; a virtual card is a new one each time."""
        return _device(self.device_memory)


def now() -> str:
    """The time, as provenance names it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _device(memory: str | None) -> Device | VirtualDevice:
    return virtual_device(memory=memory) if memory else probe()


def load_experiment(
    model: str | None, profile: Profile, settings: ComparisonSettings
) -> tuple[Experiment, LoadedModel]:
    """Load model and texts once, and settle what was left open; the model is as before any training, on the host."""
    task = TASKS[settings.task]
    whole, general = task.load(settings), task.general().limited(test=profile.test_passages)
    corpus, classes = limited(whole, profile, settings.limit), agreed_classes(model, task.classes(whole))
    base = load_model(chosen_model(model), classes=classes and len(classes))
    if hasattr(base.model, "peft_config"):
        raise ValueError(
            f"{base.name} holds a trained adapter, and every strategy starts from plain weights: merge it first "
            f"(load_model({base.name!r}, adapter='merge')), save that and name its folder"
        )
    limit = longest_input(base.model)
    row = task.row or LONGEST_ROW
    block_size = min(row, limit or row) if settings.block_size is None else settings.block_size
    window = WINDOW if task.row else LONGEST_ROW  # answers and texts with classes are scored whole
    context = min(window, limit or window) if settings.context is None else settings.context
    stride = context if settings.stride is None else settings.stride
    if not 1 <= stride <= context:
        raise ValueError(f"stride={stride}: expected 1 to context={context}, or tokens would be skipped")
    if limit is not None and block_size > limit:
        raise ValueError(f"block_size={block_size}: {base.name} reads at most {limit} tokens")
    blocks = task.batch(corpus.train, base.tokenizer, block_size, classes)
    experiment = Experiment(
        task=task,
        model=base.name,
        tokenizer=base.tokenizer,
        profile=profile,
        whole=whole,
        corpus=corpus,
        general=general,
        blocks=blocks,
        classes=classes,
        account=account(task, whole, corpus, base.tokenizer, block_size),
        batch_size=settings.batch_size,
        precision=settled_precision(settings.precision, _device(settings.device_memory)),
        context=context,
        stride=stride,
        device_memory=settings.device_memory,
        fallback=settings.fallback,
        weights_sha256=hash_of(base.model.parameters()),
        text_sha256=hash_of(tensors_in(blocks)),
    )
    return experiment, base


def allowed(
    strategies: Iterable[str] | None, config: PretrainedConfig, classes: int | None = None
) -> tuple[list[str], dict[str, str]]:
    """Say which strategies a model's architecture allows, without its weights.

    Args:
        strategies: those that were named, each of which has to be possible, or "classic", "peft" or "all", of which
            some need not be; None: classic.

    Returns:
        The strategies that are possible, and from each other one to the reason.
    """
    possible, reasons, named = [], {}, set(strategies or ())
    for strategy in strategies_named(strategies):
        try:
            if strategy != CONTROL:
                apply_strategy(meta_model(config, classes), strategy)
            possible.append(strategy)
        except ValueError as error:
            reasons[strategy] = str(error)
    if refused := [name for name in reasons if name in named]:
        raise ValueError(f"{'; '.join(reasons[name] for name in refused)}. Leave out {', '.join(refused)}")
    return possible, reasons


def load_with_strategy(
    strategy: str,
    *,
    model: str | None = None,
    seed: int = 0,
    classes: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[StrategyReport, object]:
    """Load a fresh model and make it trainable as a strategy says; returns the report and the tokenizer.

    Args:
        strategy: one of `STRATEGIES`, or `CONTROL` for full training of random weights.
        seed: of an adapter's first values, of random weights and of a new head.
        classes: of a classifier; None for a causal language model.
    """
    fresh = load_model(model, random_init=strategy == CONTROL, seed=seed, classes=classes, dtype=dtype)
    torch.manual_seed(seed)  # an adapter's first values
    return apply_strategy(fresh.model, "full" if strategy == CONTROL else strategy), fresh.tokenizer


def run_strategy(
    experiment: Experiment,
    strategy: str,
    config: TrainingConfig,
    texts: dict[str, tuple[object, ...]],
    *,
    log: FallbackLog | None = None,
    progress: Part = SILENT,
) -> tuple[StrategyReport, TrainingResult, dict[str, PerplexityResult]]:
    """Train a freshly loaded model by one strategy, and score it.

    Where the strategy leaves the lowest blocks as they are, they are computed once for each block of text
    (`cached_prefix`); the losses are the same up to rounding, and a step takes less time and memory.

    Args:
        texts: documents to score, by a name of yours.
        log: notes what was tried where memory ran out; with `experiment.fallback` only.
    """
    blocks = experiment.blocks
    dtype, plan = dtype_of_weights(strategy, experiment.precision), Plan(precision=experiment.precision)
    head = {"classes": experiment.class_count} if experiment.classes else {}
    report, _ = load_with_strategy(strategy, model=experiment.model, seed=config.seed, dtype=dtype, **head)
    model, device, log = report.model, experiment.device(), FallbackLog() if log is None else log
    how = {"plan": plan, "groups": report.groups, "progress": progress}
    if experiment.fallback:
        result, _ = train_with_fallback(model, blocks, config, device=device, log=log, **how)
    else:
        with device.counting():
            device.place(model)
            with _prefix_kept(experiment, model, config):
                result = train(model, blocks, config, **how)
    scores = {}
    for name, documents in texts.items():
        score = partial(experiment.score, model, documents, progress)
        scores[name] = experiment.evaluate(score, model, device=device, log=log)
    return report, result, scores


@contextmanager
def _prefix_kept(experiment: Experiment, model: torch.nn.Module, config: TrainingConfig) -> Iterator[None]:
    needed = math.prod(experiment.blocks.shape) * model.config.get_text_config().hidden_size * model.dtype.itemsize
    fits = needed <= min(LIMIT, probe("cpu").free_memory // 4)  # it is kept in memory alone
    with ExitStack() as stack:
        if experiment.keeps_prefix and config.epochs > 1 and fits:
            with suppress(NoFrozenPrefix):  # of most strategies: everything is computed as ever
                stack.enter_context(cached_prefix(model))
        yield
