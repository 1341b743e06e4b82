"""Follow every instruction of README and the pages for instructors literally, and write down how each ended.

Run it from the repository: `python tests/instructions.py`. It takes two hours on two cores, and goes on where it was
stopped: what the record says was followed is left out, and the copy is kept in `results/instructions`. What a reader
would bring (notes, conversations, a table, a strategy) is made first, the model hub is one on this machine, and
`sbatch` is played by a shell that runs the script with two processes.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "core"))

PAGES = ("README.md", "notebooks/instructors.md", "notebooks/places.md")
COMMAND = re.compile(r"(\w+=\S+ )*(python -m|make|sbatch|torchrun) ")
# What serves a page until it is stopped: followed until its address answers in words.
SERVERS = (
    "make lab",
    "python -m tlkit lab",
    "make demo",
    "python -m tlkit demo",
    "python -m jupyterlab",
    "TLKIT_CORPUS=my_texts/",
)
ELSEWHERE = {
    "make test": ".ci/run follows it",
    "make test-lessons": ".ci/run follows it",
    "make test-browser": ".ci/run follows it",
    "make .venv/installed": ".ci/run follows it",
    "make test-versions": "its own record: tests/versions.md",
    "make bench": "its own record: tests/benchmarks/RESULTS.md",
    "python -m tlkit compare --model smollm2-135m-instruct --profile real": "its own record: data/comparisons",
    "make run": "the same as python -m tlkit run --jobs 2",
    "python -m pytest": "the same as make test and its sisters",
    "python -m venv": "the same as make .venv/installed",
    "python -m pip install": "the same as make .venv/installed, or needs another machine",
    "make TORCH_INDEX": "needs the network",
}
RECORD, SCRATCH = ROOT / "tests" / "instructions.md", ROOT / "results" / "instructions"
DONE, SERVED = "exit code 0", "serves a page until it is stopped"
NO_CARD = "says in one line that there is no accelerator here"
WELL = (DONE, SERVED, NO_CARD, *ELSEWHERE.values())
ADDRESS = "https://github.com/a-reader/course.git"  # of the reader's copy, for the links
LIMIT = 5400  # seconds
SLURM = {
    "sbatch": 'export SLURM_JOB_NODELIST=here SLURM_NNODES=1 SLURM_GPUS_ON_NODE=2 SLURM_JOB_ID=1\nexec bash "$@"',
    "srun": 'exec "$@"',
    "scontrol": "echo localhost",
}
MINE = """
import tlkit as tl


@tl.strategy("mine")
def mine(model):
    \"\"\"The last two blocks.\"\"\"
    for block in tl.find_blocks(model)[-2:]:
        block.requires_grad_(True)
"""


@dataclass(frozen=True)
class Followed:
    """An instruction, the page it stands on, and how it ended."""

    page: str
    command: str
    ended: str


def instructions(page: str) -> list[str]:
    """Every command of a page, in its order, as a reader would copy it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    fenced = [line for block in re.findall(r"^```\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()]
    spans = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    found = [re.split(r"\s+#", line)[0] for line in fenced] + [" ".join(span.split()) for span in spans]
    wanted = [line.strip() for line in found if COMMAND.match(line) and "…" not in line]
    return list(dict.fromkeys(wanted))


def bring(folder: Path) -> None:
    """Make what a reader brings along, in the folder of the copy."""
    import pandas as pd

    from tlkit.corpus import load_corpus

    passages = load_corpus("rust").train[:40]
    for name in ("notes", "my_texts"):
        (folder / name).mkdir()
        for number, text in enumerate(passages):
            (folder / name / f"{number}.md").write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "data" / "answers" / "train.jsonl", folder / "chats.jsonl")
    labelled = [{"text": text, "label": "first" if number < 20 else "second"} for number, text in enumerate(passages)]
    lines = "".join(json.dumps(row) + "\n" for row in labelled)
    (folder / "texts.jsonl").write_text(lines, encoding="utf-8")
    (folder / "mine.py").write_text(MINE, encoding="utf-8")
    for name in ("handed_in", "week1"):
        (folder / name).mkdir()
        shutil.copy(ROOT / "notebooks" / "03_data_and_baseline.ipynb", folder / name)
    shutil.copytree(ROOT / "data" / "studies", folder / "studies")
    pd.DataFrame({"method": list("abc"), "accuracy": [0.5, 0.48, 0.3]}).to_csv(folder / "table.csv", index=False)


def follow(command: str, folder: Path, environment: dict[str, str]) -> str:
    """Run one instruction as it stands; for a server, until its address is said.

    Returns:
        How it ended, in words.
    """
    log = folder / "said.txt"
    with log.open("w") as said:
        process = subprocess.Popen(
            command, shell=True, cwd=folder, env=environment, stdout=said, stderr=said, start_new_session=True
        )
        try:
            if command.startswith(SERVERS):
                began = time.monotonic()
                while process.poll() is None and time.monotonic() - began < 120:
                    if re.search(r"http://\S+", log.read_text(errors="replace")):
                        return SERVED
                    time.sleep(0.5)
                return f"no address within 120 s: {last_line(log)}"
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            return f"still running after {LIMIT} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
                time.sleep(2)
                os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
    if code and "no accelerator works here" in log.read_text(encoding="utf-8", errors="replace"):
        return NO_CARD
    return DONE if code == 0 else f"exit code {code}: {last_line(log)}"


def last_line(log: Path) -> str:
    """The last line that is not empty."""
    return next(
        (line for line in reversed(log.read_text(encoding="utf-8", errors="replace").splitlines()) if line.strip()),
        "no word",
    )


def main() -> int:
    """Follow all instructions that the record does not have yet, and record each as it ends."""
    from hub_server import serve

    from tlkit.models import BUNDLED

    before = recorded()
    copy, tools = SCRATCH / "copy", SCRATCH / "tools"
    if not copy.exists():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        subprocess.run(["git", "remote", "set-url", "origin", ADDRESS], check=True, cwd=copy)
        (copy / ".venv").symlink_to(ROOT / ".venv")
        (copy / ".venv" / "installed").touch()  # newer than the files that were cloned: nothing is to be installed
        bring(copy)
    tools.mkdir(exist_ok=True)
    for name, body in SLURM.items():
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)
    found: list[Followed] = []
    with serve(BUNDLED) as hub:
        environment = os.environ | {
            "PATH": f"{tools}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "HF_ENDPOINT": hub.address,
            "HF_HOME": str(SCRATCH / "hub"),
            "BROWSER": "true",  # a program that opens nothing
            "PYTHONPATH": str(copy),
            "TLKIT_PROGRESS": "off",
        }
        for page in PAGES:
            for command in instructions(page):
                if any(one.command == command for one in found):
                    continue
                ended = before.get(command) or elsewhere(command) or follow(command, copy, environment)
                found.append(Followed(page, command, ended))
                write(found)
                print(f"{command}\n    {ended}", flush=True)
    failed = [one for one in found if one.ended not in WELL]
    print(f"{len(found)} instructions, {len(failed)} did not end as they should")
    return 1 if failed else 0


def elsewhere(command: str) -> str | None:
    """Where else an instruction is followed, for those that this program leaves out."""
    starts = [start for start in ELSEWHERE if command.startswith(start)]
    return ELSEWHERE[max(starts, key=len)] if starts else None


def recorded() -> dict[str, str]:
    """How the instructions ended that the record has; those that did not end well are followed again."""
    if not RECORD.is_file():
        return {}
    rows = re.findall(r"^\| [^|]+ \| `(.*)` \| (.+) \|$", RECORD.read_text(encoding="utf-8"), re.M)
    return {command: ended for command, ended in rows if ended in (DONE, SERVED, NO_CARD)}


def write(found: list[Followed]) -> None:
    """Write the record beside this file."""
    rows = [f"| {Path(one.page).name} | `{one.command}` | {one.ended} |" for one in found]
    head = [
        "# Instructions, followed",
        "",
        f"Written by `python tests/instructions.py` until {date.today()}: every command of README, of the page for "
        "instructors and of the places to run, as it stands there, in a fresh copy. What a reader would bring was made "
        "before, the model hub was one on the same machine, and `sbatch` a shell that starts two processes.",
        "",
        "| page | instruction | how it ended |",
        "| --- | --- | --- |",
    ]
    RECORD.write_text("\n".join([*head, *rows, ""]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
