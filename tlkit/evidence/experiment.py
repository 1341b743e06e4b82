"""What the runs of a comparison or a search share, and how one is carried out."""

import datetime
import math
import platform
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version

import torch
import transformers
from transformers import PretrainedConfig

from tlkit.checkpoints import hash_of
from tlkit.corpus import Corpus
from tlkit.devices import Device, probe, settled_precision
from tlkit.evaluation import PerplexityResult
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.tasks import TaskData, Window, load_documents
from tlkit.examples import Batch, tensors_in
from tlkit.fitting.fallback import FallbackLog, evaluate_with_fallback, train_with_fallback
from tlkit.jobs import SILENT, Job
from tlkit.memory import VirtualDevice, virtual_device
from tlkit.models import LoadedModel, load_model, meta_model
from tlkit.models.parts import longest_input
from tlkit.models.prefix import LIMIT, NoFrozenPrefix, cached_prefix
from tlkit.names import CONTROL
from tlkit.settings import Plan, Profile, TrainingConfig
from tlkit.strategies import StrategyReport, apply_strategy, dtype_of_weights, strategies_named
from tlkit.training import TrainingResult, total_steps, train


@dataclass(frozen=True)
class Experiment:
    """What decides a run's numbers beside strategy, rate and seed."""

    options: ComparisonSettings
    profile: Profile
    model: str
    tokenizer: object
    weights_sha256: str
    data: TaskData
    notes: dict[str, object]  # on the documents
    general: Corpus  # by which forgetting is seen; empty where the task has none
    blocks: Batch  # of the training split: token ids, shape (blocks, block_size), or examples
    window: Window  # in scoring

    @cached_property  # every trial asks; text is hashed for it
    def settings(self) -> dict[str, object]:
        """All that the numbers depend on; runs may be compared where these are equal."""
        options, data = self.options, self.data
        return {
            "task": options.task,
            "weights_sha256": self.weights_sha256,
            "corpus": data.used.name,
            "corpus_sha256": data.whole.sha256,
            "text_sha256": hash_of(tensors_in(self.blocks)),
            "profile": self.profile.name,
            "train_documents": len(data.used.train),
            "test_documents": len(data.used.test),
            "epochs": self.profile.epochs,
            "block_size": self.blocks.shape[1],
            "batch_size": options.batch_size,
            **self.window,
            "device": self.device().kind,
            "device_memory": options.device_memory,
            "fallback": options.fallback,
            "precision": self.precision,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "peft": version("peft"),
        }

    @property
    def provenance(self) -> dict[str, object]:
        """The settings, and where, when and with what a run was made."""
        device = self.device()
        made = {"device": f"{device.kind}: {device.name}", "date": now(), "python": platform.python_version()}
        return {"model": self.model, **self.settings, **made}

    @property
    def config(self) -> TrainingConfig:
        """Of every run, but for its rate and seed."""
        return TrainingConfig(epochs=self.profile.epochs, batch_size=self.options.batch_size)

    @property
    def steps(self) -> int:
        return total_steps(len(self.blocks), self.config)

    @property
    def precision(self) -> str:
        return settled_precision(self.options.precision, self.device())

    def device(self) -> Device | VirtualDevice:
        """Where a run takes place; a new one if it is a virtual card."""
        return virtual_device(memory=self.options.device_memory) if self.options.device_memory else probe()

    def score(
        self, model: torch.nn.Module, documents: tuple[object, ...], rows: int = 8, progress: Job = SILENT
    ) -> PerplexityResult:
        # A learned prompt takes up a part of what the model can read.
        context = min(self.window["context"], longest_input(model) or self.window["context"])
        window = {"context": context, "stride": min(self.window["stride"], context), "batch_size": rows}
        return self.data.task.score(model, self.tokenizer, documents, window, self.data.classes, progress)

    def measure(
        self,
        model: torch.nn.Module,
        split: str,
        device: Device | VirtualDevice,
        *,
        log: FallbackLog | None = None,
        progress: Job = SILENT,
    ) -> tuple[dict[str, float], dict[str, list]]:
        """Figures of a model on a split; and by column the nats and tokens of each document."""
        task, classes = self.data.task, self.data.classes
        documents, general = getattr(self.data.used, split), getattr(self.general, split)

        def evaluated(action: Callable[[int], object], rows: int = 8):
            if not self.options.fallback:
                return action(rows)
            return evaluate_with_fallback(action, model, batch_size=rows, device=device, log=log)

        score = evaluated(lambda rows: self.score(model, documents, rows, progress))
        forgotten = evaluated(lambda rows: self.score(model, general, rows, progress)) if general else None
        of_task = evaluated(lambda _: task.measure(model, self.tokenizer, documents, classes, progress), rows=1)
        figures = {
            "perplexity": score.perplexity,
            "perplexity_low": score.low,
            "perplexity_high": score.high,
            "bits_per_byte": score.bits_per_byte,
            "context": score.context,
            "general": forgotten.perplexity if forgotten else math.nan,
            **of_task,
        }
        nats, tokens = list(score.document_nats), list(score.document_tokens)
        return figures, {"document": list(range(score.documents)), "nats": nats, "tokens": tokens}


def now() -> str:
    """Date and time in UTC, to the minute."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def load_experiment(model: str | None, profile: Profile, options: ComparisonSettings) -> tuple[Experiment, LoadedModel]:
    """Load model and texts, and settle what was left open; the model is untouched, on the host."""
    data = load_documents(options, profile, model)
    task, base = data.task, load_model(model, classes=data.class_count)
    if hasattr(base.model, "peft_config"):
        raise ValueError(
            f"{base.name} is an adapter: expected a folder of plain weights, as load_model(…, adapter='merge') returns"
        )
    limit = longest_input(base.model) or math.inf
    row = options.block_size or min(task.row, limit)
    if row > limit:
        raise ValueError(f"block_size={row}: {base.name} reads at most {limit} tokens")
    window = task.window(base.model, options.context, options.stride)
    if window["stride"] > window["context"]:
        raise ValueError(f"stride={window['stride']}: expected 1 to context={window['context']}")
    experiment = Experiment(
        options=options,
        profile=profile,
        model=base.name,
        tokenizer=base.tokenizer,
        weights_sha256=hash_of(base.model.parameters()),
        data=data,
        notes=data.notes(base.tokenizer, row),
        general=task.general().limited(test=profile.test_passages),
        blocks=task.batch(data.used.train, base.tokenizer, row, data.classes),
        window=window,
    )
    return experiment, base


def allowed(
    strategies: Iterable[str], config: PretrainedConfig, classes: int | None = None
) -> tuple[list[str], dict[str, str]]:
    """Say which strategies a model's architecture allows, and why not the others.

    Args:
        strategies: names, which have to be possible, or "classic", "peft" or "all", of which some need not be.
    """
    possible, reasons, named = [], {}, set(strategies)
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


def run_strategy(
    experiment: Experiment,
    strategy: str,
    config: TrainingConfig,
    split: str,
    *,
    log: FallbackLog | None = None,
    progress: Job = SILENT,
) -> tuple[StrategyReport, TrainingResult, dict[str, float], dict[str, list]]:
    """Train a freshly loaded model by one strategy, and measure it on a split, as `Experiment.measure` does.

    Args:
        strategy: one of `STRATEGIES`, or `CONTROL` for full training of random weights.
        log: takes the attempts of an experiment with fallback.
    """
    blocks, options, precision = experiment.blocks, experiment.options, experiment.precision
    fresh = load_model(
        experiment.model,
        random_init=strategy == CONTROL,
        seed=config.seed,
        classes=experiment.data.class_count,
        dtype=dtype_of_weights(strategy, precision),
    )
    torch.manual_seed(config.seed)  # an adapter's first values
    report = apply_strategy(fresh.model, "full" if strategy == CONTROL else strategy)
    model, device = report.model, experiment.device()
    how = {"plan": Plan(precision=precision), "groups": report.groups, "progress": progress}
    if options.fallback:
        result, _ = train_with_fallback(model, blocks, config, device=device, log=log, **how)
    else:
        needed = math.prod(blocks.shape) * model.config.get_text_config().hidden_size * model.dtype.itemsize
        fits = needed <= min(LIMIT, probe("cpu").free_memory // 4)
        with device.counting(), ExitStack() as stack:
            device.place(model)
            if fits and config.epochs > 1 and not options.device_memory:  # where memory is not what is tried out
                with suppress(NoFrozenPrefix):
                    stack.enter_context(cached_prefix(model))
            result = train(model, blocks, config, **how)
    return report, result, *experiment.measure(model, split, device, log=log, progress=progress)
