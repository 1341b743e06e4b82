"""The command that says what is here, what is missing, and how to mend it."""

from tlkit.commands.outcome import Outcome
from tlkit.settings import setup


def doctor() -> Outcome:
    """Say what is here, what works, and how to mend what does not; exit 1 where a lesson would fail."""
    from tlkit.doctor import examine

    setup()
    findings = examine()
    code = 1 if any(finding.status == "FAIL" for finding in findings) else 0
    return Outcome(findings, "\n".join(map(str, findings)), code)
