"""Where the time of a LoRA step goes, operator by operator: `python tests/benchmarks/lora_profile.py`.

Writes `lora_profile.csv` beside this file, or into the folder `--output`, for peft's layers, for those of
`fused_lora`, and for blocks that are compiled as well; `against_trainer.py` puts the tables into RESULTS.md. They are
of SmolLM2-135M-Instruct, by its name or with `--model` as a folder, and of the bundled model where that is not here.
"""

import argparse
from pathlib import Path

import pandas as pd
from strategies_to_time import REAL, is_here, plan_for, ready

HERE = Path(__file__).parent
RECORD = "lora_profile.csv"
SHOWN = 12  # operators
COMPILED = "programs of compiled blocks"
STEPS = 3


def profile(name: str, folder: str | None, strategy: str, rows: int, tokens: int) -> pd.DataFrame:
    """A row for each of the dearest operators of a step, by their own time, without what they call."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    from tlkit.memory import freed_memory_kept
    from tlkit.steps import TrainingState, take_step

    model, blocks = ready(name, folder, strategy, rows, tokens)
    state = TrainingState(model, weight_decay=0.0)
    state.apply_plan(plan_for(model, rows, strategy))
    with freed_memory_kept():  # as `train` does
        for _ in range(2):  # libraries are loaded, and memory is taken
            take_step(state, blocks, 1e-4)
        with watch(activities=[ProfilerActivity.CPU]) as found:
            for _ in range(STEPS):
                take_step(state, blocks, 1e-4)
    table = pd.DataFrame(
        {"operator": event.key, "calls": event.count // STEPS, "ms": event.self_cpu_time_total / 1000 / STEPS}
        for event in found.key_averages()
    )
    table["operator"] = table.operator.str.replace(r"^## Call CompiledFxGraph .*", COMPILED, regex=True)
    table = table.groupby("operator", as_index=False, sort=False).sum()  # each compiled program has a name of its own
    table = table.assign(share=table.ms / table.ms.sum()).nlargest(SHOWN, "ms")
    return table.assign(model=name, strategy=strategy, batch=f"{rows} x {tokens}")


def profiles_in_words(output: Path) -> str:
    """The recorded tables, for RESULTS.md; empty where there is no record."""
    if not (output / RECORD).is_file():
        return ""
    parts = [
        "\n## Where the time of a LoRA step goes\n\nBy torch's profiler, each operator without those that it calls. "
        "`aten::mm` and `aten::addmm` multiply matrices; `aten::add`, `aten::mul` and `aten::copy_` read and write. "
        "Programs of compiled blocks do all that lies between the products."
    ]
    for (model, strategy, batch), part in pd.read_csv(output / RECORD).groupby(
        ["model", "strategy", "batch"], sort=False
    ):
        shown = part[["operator", "calls", "ms", "share"]].round({"ms": 1, "share": 3})
        whole = part.ms.sum() / part.share.sum()
        parts.append(f"{strategy}, {model}, {batch}, {whole:,.0f} ms a step (calls and ms are of a step):")
        parts.append(f"{shown.to_markdown(index=False)}\n\nAll other operators: {1 - part.share.sum():.3f}.")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    from tlkit.settings import setup

    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help=f"the folder of {REAL}, where `load_model` does not find it by its name")
    parser.add_argument("--output", type=Path, default=HERE, help="where to write; default: beside this file")
    options = parser.parse_args()
    setup()
    case = (REAL, options.model, 4, 128) if is_here(options.model) else ("tiny", None, 8, 128)
    tables = [profile(*case[:2], strategy, *case[2:]) for strategy in ("lora", "lora, fused", "lora, fused, compiled")]
    options.output.mkdir(parents=True, exist_ok=True)
    pd.concat(tables).to_csv(options.output / RECORD, index=False, float_format="%.5g")
