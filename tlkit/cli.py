"""`python -m tlkit …`: the package's functions from a shell. Exit 0: done; 1: failed; 2: bad input."""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        print(f"tlkit {options.name}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError | FileNotFoundError) else 1  # 1: something could not be written


def doctor(options) -> int:
    """What is here and what works; what does not, and what to do about it."""
    from tlkit.classroom.doctor import examine
    from tlkit.settings import setup

    setup()
    findings = examine()
    _show(options, [vars(finding) for finding in findings], "\n".join(map(str, findings)))
    return 1 if any(finding.status == "FAIL" for finding in findings) else 0


def params(options) -> int:
    """Trainable counts of every strategy, without weights."""
    from tlkit.models import meta_model
    from tlkit.strategies import STRATEGIES, apply_strategy

    meta_model(options.model)  # an unknown preset is bad input; a strategy that does not fit is a row
    rows, lines = [], []
    for strategy in STRATEGIES:
        try:
            report = apply_strategy(meta_model(options.model), strategy)
        except ValueError as error:
            rows.append({"strategy": strategy, "cannot": str(error)})
            lines.append(str(error))
            continue
        keys = ("strategy", "trainable_values", "total_values", "trainable_tensors", "total_tensors", "percent")
        rows.append({key: getattr(report, key) for key in keys})
        lines.append(str(report))
    _show(options, rows, "\n".join(lines))
    return 0


def estimate(options) -> int:
    """What a training step will need, before it is taken; exit 1 where it does not fit the memory given."""
    from tlkit.fitting.estimate import estimate_memory
    from tlkit.memory import in_units, parse_size
    from tlkit.steps import Plan

    budget = parse_size(options.device_memory) if options.device_memory else None
    plan = Plan(
        options.micro_batch_size,
        chunked_loss=options.chunked_loss,
        activation_checkpointing=options.activation_checkpointing,
    )
    found = estimate_memory(
        options.model,
        options.strategy,
        dtype=options.dtype,
        batch_size=options.batch_size,
        sequence_length=options.sequence_length,
        plan=plan,
        optimizer=options.optimizer,
    )
    fits = budget is None or found.peak <= budget
    lines = [str(found), "A card's driver, libraries and rounding take more: leave 15% of a card."]
    if budget is not None:
        lines.append(f"{'fits' if fits else 'does not fit'} into {in_units(budget)}")
    figures = {
        "peak": found.peak,
        "phase": found.phase,
        **found.categories,
        "on top": found.process_overhead,
        "fits": fits,
    }
    _show(options, figures, "\n".join(lines))
    return 0 if fits else 1


def evaluate(options) -> int:
    """Perplexity of a model on the test split of a corpus."""
    from tlkit.corpus import load_corpus
    from tlkit.evaluation import perplexity
    from tlkit.models import load_model

    corpus = load_corpus(options.corpus)
    loaded = load_model(options.model)
    context = min(256, loaded.model.config.max_position_embeddings)
    result = perplexity(loaded.model, loaded.tokenizer, corpus.test, context=context)
    _show(options, vars(result), f"{loaded}\n{corpus.name}: {result}")
    return 0


def train(options) -> int:
    """Adapt a model by one strategy and save it; under torchrun, in several processes."""
    from contextlib import nullcontext

    from tlkit.corpus import load_corpus, pack
    from tlkit.devices import probe
    from tlkit.evaluation import perplexity
    from tlkit.evidence.learning_rates import default_rates
    from tlkit.fitting.fallback import move_to_device
    from tlkit.models import load_model
    from tlkit.prefix import cached_prefix
    from tlkit.scaling.processes import joined
    from tlkit.settings import setup
    from tlkit.strategies import apply_strategy
    from tlkit.training import TrainingConfig
    from tlkit.training import train as train_model

    profile = setup(options.profile)
    corpus = load_corpus(options.corpus).limited(profile.train_passages, profile.test_passages)
    loaded = load_model(options.model)
    report = apply_strategy(loaded.model, options.strategy, **_strategy_options(options.strategy_option))
    rate = options.learning_rate if options.learning_rate is not None else default_rates()[options.strategy]
    config = TrainingConfig(rate, epochs=options.epochs, batch_size=options.batch_size)
    blocks = pack(corpus.train, loaded.tokenizer, options.sequence_length)
    with joined(options.sharding, offload=options.cpu_offload) as team:
        first = team.rank == 0
        move_to_device(report.model, probe(), team)
        before = perplexity(loaded.model, loaded.tokenizer, corpus.test) if first else None
        with cached_prefix(report.model) if options.cached_prefix else nullcontext() as cache:
            result = train_model(
                report.model,
                blocks,
                config,
                checkpoint_dir=options.output / "checkpoints",
                every=options.checkpoint_every,
                resume=options.resume,
                progress=first and not options.json,
                team=team,
            )
    if not first:
        return 0
    after = perplexity(report.model, loaded.tokenizer, corpus.test)
    report.model.save_pretrained(options.output)
    loaded.tokenizer.save_pretrained(options.output)
    figures = {"before": vars(before), "after": vars(after), "seconds": result.seconds, "output": str(options.output)}
    lines = [str(report), f"before: {before}", f"after:  {after}", f"saved in {options.output}"]
    _show(options, figures, "\n".join(lines + ([f"frozen prefix: {cache}"] if cache else [])))
    return 0


def _strategy_options(given: list[str]) -> dict[str, object]:
    """Of train_norms=false, {"train_norms": False}; what it means is the strategy's to say."""
    import yaml

    for option in given:
        if "=" not in option:
            raise ValueError(f"--strategy-option {option!r}: expected NAME=VALUE, such as train_norms=false")
    return {name: yaml.safe_load(value) for name, _, value in (option.partition("=") for option in given)}


def compare(options) -> int:
    """Every strategy, several seeds, one table; exit 1 when a strategy failed."""
    import pandas as pd

    from tlkit.evidence.comparison import compare as compare_strategies
    from tlkit.evidence.learning_rates import best_rates
    from tlkit.reports.export import as_markdown, export
    from tlkit.scaling.processes import joined
    from tlkit.settings import setup

    strategies = options.strategies.split(",") if options.strategies else None
    with joined(options.sharding, offload=options.cpu_offload) as team:
        first = team.rank == 0
        comparison = compare_strategies(
            options.model,
            strategies,
            profile=setup(options.profile),
            seeds=options.seeds,
            device_memory=options.device_memory,
            fallback=options.fallback,
            against=options.against,
            learning_rates=best_rates(pd.read_csv(options.learning_rates)) if options.learning_rates else None,
            progress=first and not options.json,
            **{"spread_over" if options.spread else "team": team},
        )
    if first:
        export(comparison, options.output)
        text = as_markdown(comparison.table) + f"\nFiles are in {options.output}"
        _show(options, json.loads(comparison.table.to_json(orient="records")), text)
        for name, reason in comparison.failures.items():
            print(f"FAILED {name}: {reason.splitlines()[-1]}", file=sys.stderr)
    return 1 if comparison.failures else 0


def sweep(options) -> int:
    """Many runs that differ in one setting, judged on validation data; what is in OUTPUT already is not run again."""
    from tlkit.evidence.sweeps import run_sweep
    from tlkit.settings import setup

    output = options.output or Path("results") / f"sweep_{options.sweep}.csv"
    profile = setup(options.profile)
    record = run_sweep(options.sweep, output, profile=profile, model=options.model, progress=not options.json)
    _show(options, json.loads(record.to_json(orient="records")), f"{len(record)} runs are in {output}")
    return 0


def validate(options) -> int:
    """Train a tier and judge its criteria; exit 1 where one does not hold, or where the tier cannot run here."""
    from tlkit.evidence.tier_files import TIER_NAMES, load_tier
    from tlkit.settings import setup

    setup()
    tiers = [load_tier(name, model=options.model) for name in (TIER_NAMES if options.tier == "all" else [options.tier])]
    rows, ended = [], 0
    for tier in tiers:
        verdicts, text = _judge(tier, options)
        rows.append({"tier": tier.name, "model": tier.model, "criteria": verdicts, "said": text})
        if not options.json:
            print(text, flush=True)
        if not verdicts or not all(verdict["holds"] for verdict in verdicts):
            ended = 1
            if not options.continue_on_error:
                break
    if options.json:
        print(json.dumps(rows, indent=2))
    return ended


def _judge(tier, options) -> tuple[list[dict], str]:
    """The verdicts on a tier, none where it cannot run here, and all that is to be said of it."""
    from tlkit.devices import probe
    from tlkit.evidence.tiers import CannotRunHere, estimate_tier, refuse_what_does_not_fit, run_tier
    from tlkit.memory import in_units

    def show(record) -> None:
        if options.verbose and not options.json and (record.step % 10 == 0 or record.step == 1):
            print(f"  step {record.step}: loss {record.loss:.3f}, {record.tokens / record.seconds:,.0f} tokens/s")

    device, estimate = probe(), estimate_tier(tier)
    lines = [
        f"{tier.name}: {tier.model}, {tier.strategy}, {tier.steps} steps of {tier.batch_size} x {tier.sequence_length} "
        f"tokens on {device.name}",
        f"estimate: {estimate}",
    ]
    verdicts = []
    try:
        if options.check_memory:
            refuse_what_does_not_fit(tier, estimate, device)
            fits = estimate.peak <= tier.required_memory
            verdicts = [{"criterion": "memory", "holds": fits, "found": str(estimate)}]
            lines.append(f"{in_units(tier.required_memory)} allowed, {in_units(device.free_memory)} free here")
        else:
            found = run_tier(tier, device=device, estimate=estimate, on_step=show)
            lines += [str(verdict) for verdict in found]
            verdicts = [vars(verdict) for verdict in found]
    except CannotRunHere as error:
        lines.append(f"[CANNOT RUN HERE] {error}")
    return verdicts, "\n".join(lines)


def run(options) -> int:
    """Execute every notebook; write the executed copies, the comparison and its charts below results/."""
    from tlkit.classroom.notebooks import FOLDER, execute_all, sources
    from tlkit.classroom.pages import write_generated

    if options.jobs < 1:
        raise ValueError(f"--jobs {options.jobs}: expected at least 1")
    results = ROOT / "results"
    if options.in_place:
        write_generated()
    scripts = [*sources(), FOLDER / "demo.py"] if options.in_place else sources()
    failed = execute_all(scripts, FOLDER if options.in_place else results, results, jobs=options.jobs)
    for name, reason in failed.items():
        print(f"FAILED {name}: {reason}", file=sys.stderr)
    table = results / "comparison.md"
    if table.is_file():
        print(table.read_text(encoding="utf-8"))
    print(f"Results are in {results}")
    return 1 if failed else 0


def grade(options) -> int:
    """Run the exercises of handed-in lessons (students' code) and say which are right; exit 1: some were not graded."""
    from tlkit.classroom.grading import grade_all

    for path in options.notebooks:
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file")
    if options.output and not options.output.parent.is_dir():
        raise FileNotFoundError(f"{options.output.parent}: no such folder")
    marks = grade_all(options.notebooks)
    if options.output:
        marks.to_csv(options.output, index=False)
    lines = []
    for path, of in marks.groupby("notebook", sort=False):
        if of.right.isna().any():
            lines.append(f"{path}: not graded: {of.reason.iloc[0]}")
            continue
        lines.append(f"{path}: {of.right.sum()} of {len(of)} right")
        lines += [f"  {row.exercise} {'right' if row.right else f'wrong: {row.reason}'}" for row in of.itertuples()]
    _show(options, json.loads(marks.to_json(orient="records")), "\n".join(lines))
    return 1 if marks.right.isna().any() else 0


def handouts(options) -> int:
    """Write the executed lessons as slides, and their code alone."""
    from tlkit.classroom.handouts import write_code_only, write_slides

    written = write_slides(options.output / "slides") + write_code_only(options.output / "code")
    _show(options, [str(path) for path in written], "\n".join(map(str, written)))
    return 0


def demo(options) -> int:
    """Serve the live demo on this machine, with a token; ends with Ctrl+C."""
    import os

    from tlkit.classroom.notebooks import FOLDER

    os.environ["JUPYTER_PATH"] = str(FOLDER / "share")  # read when Voilà is imported
    from voila.app import main as serve

    arguments = ["--Voila.ip=localhost", f"--port={options.port}", "--template=classroom"]
    arguments.append("--VoilaConfiguration.extension_denylist=jupyterlab-jupytext")  # made for another page
    arguments.append(f"--token={options.token}" if options.token else "--token")
    arguments += [] if options.browser else ["--no-browser"]
    serve([*arguments, str(FOLDER / "demo.ipynb")])
    return 0


def _show(options, data, text: str) -> None:
    print(json.dumps(data, indent=2, default=str) if options.json else text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tlkit", description="Transfer learning, from a shell.")
    commands = parser.add_subparsers(required=True, dest="name")

    def add(function):
        command = commands.add_parser(function.__name__, help=function.__doc__.splitlines()[0])
        command.add_argument("--json", action="store_true", help="print JSON, for machines")
        command.set_defaults(command=function)
        return command

    def processes(command):
        command.add_argument("--sharding", help="under torchrun: ddp (default), or fsdp to keep weights in parts")
        command.add_argument("--cpu-offload", action="store_true", help="with fsdp: keep the parts on the host")

    add(doctor)
    add(params).add_argument("--model", default="tiny", help="a preset")
    command = add(estimate)
    command.add_argument("--model", default="tiny", help="preset, hub id or folder; no weights are read")
    command.add_argument("--strategy", default="full")
    command.add_argument("--dtype", default="fp32", help="of the weights: fp32, bf16 or fp16")
    command.add_argument("--batch-size", type=int, default=1)
    command.add_argument("--micro-batch-size", type=int)
    command.add_argument("--sequence-length", type=int, default=512)
    command.add_argument("--optimizer", default="adamw", help="adamw or sgd")
    command.add_argument("--activation-checkpointing", action="store_true")
    command.add_argument("--chunked-loss", action="store_true")
    command.add_argument("--device-memory", help="such as 8GB: say whether it fits")
    command = add(evaluate)
    command.add_argument("--model", help="preset, hub id or folder")
    command.add_argument("--corpus", help="rust, facts, general or a path")
    command = add(train)
    command.add_argument("--model", help="preset, hub id or folder")
    command.add_argument("--strategy", required=True)
    command.add_argument("--corpus", help="rust, facts or a path")
    command.add_argument("--output", type=Path, required=True)
    command.add_argument("--profile", help="ci, laptop or gpu: how much data")
    command.add_argument("--learning-rate", type=float)
    command.add_argument("--epochs", type=float, default=1)
    command.add_argument("--batch-size", type=int, default=4)
    command.add_argument("--sequence-length", type=int, default=128)
    command.add_argument("--checkpoint-every", type=int, default=100, help="steps between two checkpoints")
    command.add_argument("--resume", action="store_true", help="go on with the run whose checkpoints are in OUTPUT")
    command.add_argument("--strategy-option", action="append", default=[], help="NAME=VALUE, such as train_norms=false")
    command.add_argument("--cached-prefix", action="store_true", help="compute frozen lower blocks once per sequence")
    processes(command)
    command = add(compare)
    command.add_argument("--model", help="preset, hub id or folder")
    command.add_argument("--strategies", help="comma-separated; default: all")
    command.add_argument("--seeds", type=int)
    command.add_argument("--profile", help="ci, laptop or gpu: how much data, how many epochs and seeds")
    command.add_argument("--device-memory", help="such as 48MB: play a card of that size on the CPU")
    fallback = {"action": argparse.BooleanOptionalAction, "default": False}
    command.add_argument("--fallback", help="go on with less when memory runs out", **fallback)
    command.add_argument("--against", help="strategy that the others are compared with, seed by seed; default: full")
    command.add_argument(
        "--learning-rates", type=Path, help="record of `sweep rates`; default: that of the bundled model"
    )
    command.add_argument("--output", type=Path, default=Path("results"))
    command.add_argument("--spread", action="store_true", help="under torchrun: each process does runs of its own")
    processes(command)
    command = add(sweep)
    command.add_argument("sweep", help="rates, epochs, passages or general")
    command.add_argument("--model", help="preset, hub id or folder")
    command.add_argument("--profile", help="ci, laptop or gpu: how much data")
    command.add_argument("--output", type=Path, help="CSV file; a record that is there is gone on with")
    command = add(validate)
    command.add_argument("tier", help="quick, convergence, memory, extended, full, or all")
    command.add_argument("--model", help="in the place of the tier's model: tiny runs its logic anywhere")
    command.add_argument("--check-memory", action="store_true", help="estimate and compare, without training")
    command.add_argument("--verbose", action="store_true", help="show the loss on the way")
    command.add_argument("--continue-on-error", action="store_true", help="with all: go on after a tier that fails")
    command = add(grade)
    command.add_argument("notebooks", nargs="+", type=Path, help="lessons that students have handed in")
    command.add_argument("--output", type=Path, help="a CSV file with a row for each notebook and exercise")
    add(handouts).add_argument("--output", type=Path, default=Path("results") / "handouts")
    command = add(demo)
    command.add_argument("--port", type=int, default=8866)
    command.add_argument("--token", help="what opens the page; default: a new one, which is printed")
    command.add_argument("--browser", action=argparse.BooleanOptionalAction, default=True, help="open a browser")
    command = add(run)
    command.add_argument("--in-place", action="store_true", help="write the executed notebooks beside their sources")
    command.add_argument("--jobs", type=int, default=1, help="lessons at a time; times are truest with one")
    return parser
