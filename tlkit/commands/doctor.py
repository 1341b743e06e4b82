"""The command that says what is here, what is missing, and how to mend it."""

from dataclasses import dataclass

from tlkit.commands.outcome import Outcome
from tlkit.options import option


@dataclass(frozen=True)
class DoctorOptions:
    """What to look at"""

    gpu: bool = option(False, "the accelerator too, in under a minute: the short form of `accept`")


def doctor(options: DoctorOptions) -> Outcome:
    """Say what is here, what works, and how to mend what does not; exit 1 where a lesson would fail."""
    from tlkit.doctor import examine, examine_accelerator
    from tlkit.settings import setup

    setup()
    findings = examine() + (examine_accelerator() if options.gpu else [])
    code = 1 if any(finding.status == "FAIL" for finding in findings) else 0
    return Outcome(findings, "\n".join(map(str, findings)), code)
