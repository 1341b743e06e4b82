"""Lesson 18 cannot shard as accelerate does on GPUs: here its script does, on processors in disguise."""

import ast
from pathlib import Path

import jupytext
import pytest
import torch
from accelerate.commands.launch import launch_command, launch_command_parser
from transformers import AutoTokenizer
from wrong_answers import UPDATE

import tlkit as tl

LESSON = Path(__file__).resolve().parents[2] / "notebooks" / "18_scaling_out.py"
LOSSES = [5.0811, 4.6178, 4.7856]  # of one process, as the lesson shows them
# accelerate offers FSDP where it sees several GPUs, so it is told that these processors are some.
DISGUISED = """
import gc; gc.disable()  # as in conftest.py
import accelerate, runpy
from accelerate.state import DistributedType, PartialState
PartialState._prepare_backend = lambda *_: ("gloo", DistributedType.MULTI_GPU)
real = accelerate.Accelerator
def shards(cpu, **options):
    accelerator = real(**options)
    assert accelerator.is_fsdp2
    return accelerator
accelerate.Accelerator = shards
runpy.run_path("lesson.py")
"""
# With the solution of exercise 18.1.
IN_MICRO_BATCHES = """
from itertools import islice
accelerator.free_memory()
def train(kind, model, optimizer, loader):
    batches = iter(loader)
    while parts := list(islice(batches, 2)):
        accelerator.print(kind, update(accelerator, model, optimizer, parts))
"""


def strings_of(lesson, names):
    """What the lesson puts into these names, without running the rest of it."""
    code = "\n".join(cell.source for cell in jupytext.read(lesson).cells if cell.cell_type == "code")
    nodes = [node for node in ast.parse(code).body if isinstance(node, ast.Assign | ast.AugAssign)]
    targets = [(node, ast.unparse(getattr(node, "target", None) or node.targets[0])) for node in nodes]
    found = {}
    exec(compile(ast.Module([node for node, name in targets if name in names], []), lesson.name, "exec"), found)
    return [found[name] for name in names]


def test_the_script_and_the_file_of_the_lesson_make_accelerate_shard(tmp_path, monkeypatch, capfd):
    loop, with_ddp, _, fsdp = strings_of(LESSON, ("loop", "with_ddp", "ddp", "fsdp"))
    assert "\nmixed_precision: bf16\n" in fsdp
    fsdp = fsdp.replace("mixed_precision: bf16\n", "")  # in fp32 the losses are those of one process
    inputs = tl.pack(tl.load_corpus("rust").train[:60], AutoTokenizer.from_pretrained(tl.BUNDLED), 64)[:24]
    labels = inputs.clone()
    labels.view(3, 8, 64)[:, 2:, 16:] = -100
    torch.save((inputs, labels), tmp_path / "rows.pt")
    again = UPDATE + IN_MICRO_BATCHES + with_ddp.replace("8 // size", "4 // size")
    for name, text in {"fsdp.yaml": fsdp, "lesson.py": loop + with_ddp + again, "train.py": DISGUISED}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name, value in {"OMP_NUM_THREADS": "1", "USE_LIBUV": "0", "ACCELERATE_TORCH_DEVICE": "cpu"}.items():
        monkeypatch.setenv(name, value)
    given = ["--config_file", "fsdp.yaml", "train.py", str(tl.BUNDLED)]
    launch_command(launch_command_parser().parse_args(given))  # `accelerate launch`, without a process for itself
    losses = [float(line[4:]) for line in capfd.readouterr().out.splitlines() if line.startswith("DDP ")]
    assert losses == pytest.approx(2 * LOSSES, abs=2e-3)
    saved = (tmp_path / "trained/model.safetensors").stat().st_size
    assert saved > 4 * 4_036_800  # and the model in one piece
