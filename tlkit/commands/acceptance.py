"""The acceptance run of one device: does everything work there, and how exactly?"""

from dataclasses import dataclass
from pathlib import Path

from tlkit.commands.outcome import Outcome
from tlkit.options import option


@dataclass(frozen=True)
class AcceptOptions:
    """What to check, and where the record goes"""

    device: str | None = option(
        None, "cuda, mps, xpu, cpu, or a virtual card such as virtual:96MB; default: the accelerator that is here"
    )
    only: str | None = option(None, "some checks, comma-separated, such as training,generation; default: all")
    output: Path = option(Path("results/devices"), "the folder for the record", path="new folder")


def accept(options: AcceptOptions) -> Outcome:
    """Make every check that a device can be put to, and write the record of it; exit 1 where one failed.

    Each strategy trains there, memory is estimated and counted, a real out-of-memory is survived, checkpoints change
    between device and processor. The record names device, driver, versions and date, and each check with its figure.
    """
    from tlkit.acceptance.bench import bench_for, device_named
    from tlkit.acceptance.record import path_of
    from tlkit.acceptance.running import accept as make_checks
    from tlkit.acceptance.running import checks_named
    from tlkit.settings import setup

    setup()
    checks, bench = checks_named(options.only), bench_for(device_named(options.device))
    words = [f" --device {options.device}" if options.device else "", f" --only {options.only}" if options.only else ""]
    command = f"python -m tlkit accept{''.join(words)}"
    record = make_checks(bench, checks, output=options.output, command=command, rows_shown=True)
    written = path_of(record, options.output)
    return Outcome(vars(record) | {"record": written}, f"{record}\nThe record is in {written}", int(record.failed > 0))
