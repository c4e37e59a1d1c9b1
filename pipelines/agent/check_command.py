"""One run of a custom check: a program whose exit code or value is its result."""

from __future__ import annotations

from typing import Final

from forewarn.features.inspection.check_table import CheckTable
from forewarn.features.inspection.check_values import evaluate_run, first_line
from forewarn.features.telemetry.checks.check_result import CheckSeverity
from forewarn.features.time_units import SECOND
from forewarn.pipelines.runtime.bounded_program import run_program

__all__ = ["run_check_command"]

_SEVERITIES: Final[dict[str, CheckSeverity]] = {
    "ok": "ok",
    "blind": "notice",
    "degraded": "warning",
    "failed": "error",
}  # the worst last
_MAX_MESSAGE_CHARS = 500


def run_check_command(check: CheckTable) -> tuple[CheckSeverity, str]:
    """Run a check and return its severity and the first line of its output.

    Parameters
    ----------
    check : CheckTable

    Returns
    -------
    str
        `ok`, `warning` or `error` for the exit codes 0, 1 and 2, and `error` for a value outside
        the limits; `notice` if the result is unknown: exit code 3 or any other, no value, a
        timeout, or a program that cannot be run.
    str
        Printable, at most 500 characters.
    """
    program, timeout = check.command[0], check.timeout / SECOND
    try:
        run = run_program(check.command, timeout)
    except (OSError, ValueError) as error:
        return "notice", _short(first_line(f"unknown: {program} cannot be run: {error}"))
    if run.code is None:
        return "notice", f"unknown: no result within {timeout:g} s"
    text = run.output.decode(errors="replace")
    results = evaluate_run(check, run.code, text)
    worst = max(results, key=lambda result: list(_SEVERITIES).index(result.status))
    if worst.status == "blind":
        return "notice", _short(f"unknown: {program} {worst.text}")
    return _SEVERITIES[worst.status], _short(worst.text or first_line(text))


def _short(text: str) -> str:
    return text[:_MAX_MESSAGE_CHARS]
