"""HTML page of an interrupted job, for the person who is called: why it stops, and what to do."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from forewarn.features.duration import format_duration
from forewarn.features.hostlist import compress
from forewarn.features.time_units import SECOND
from forewarn.pipelines.recovery.recovery_advice import RUNG_NOUNS, recovery_lines
from forewarn.pipelines.rendering.templates import NO_VALUE, count, moment, render_page
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.response.recovery.job_crash import is_same_cause
from forewarn.response.recovery.recovery_plan import PlanState
from forewarn.response.state.rung import Rung

__all__ = ["render_recovery_page", "write_recovery_page"]

_MAX_LISTED = 100


def write_recovery_page(line: Mapping[str, Any], path: Path) -> None:
    """Write the page of a plan atomically."""
    text = render_recovery_page(line)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def render_recovery_page(line: Mapping[str, Any]) -> str:
    """Return a self-contained page.

    Parameters
    ----------
    line : mapping
        Of `advise_recovery`.
    """
    attempts = line["attempts"]
    context = {
        "line": line,
        "headline": _headline(line),
        "tone": "calm" if line["state"] == PlanState.TRAINING else "urgent",
        "sentences": list(_sentences(line)),
        "actions": list(_actions(line)),
        "tiles": _tiles(line),
        "attempts": [_row(row, number) for number, row in _latest(attempts)],
        "n_attempts": len(attempts),
    }
    return render_page("recovery/recovery_page.html", context)


def _needs_person(line: Mapping[str, Any]) -> bool:
    return bool(line["state"] == PlanState.STOP or line["rung"] == Rung.RESUBMIT)


def _headline(line: Mapping[str, Any]) -> str:
    if line["state"] == PlanState.TRAINING:
        return f"{line['job']} has no open interruption"
    if _needs_person(line):
        return f"{line['job']} has stopped, and does not start again by itself"
    return f"{line['job']} was interrupted, and goes on"


def _sentences(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield why the job stops, or how it goes on."""
    if not _needs_person(line):
        yield from recovery_lines(line)
        return
    yield f"Why: {line['reason']}."
    yield (
        f"The last interruption, at {moment(line['interrupted_at'])}: "
        f"{line['cause'] or 'its cause is unknown'}."
    )
    if line["tried"]:
        tried = ", ".join(RUNG_NOUNS[rung].lower() for rung in line["tried"])
        yield f"Tried for it: {tried}."


def _actions(line: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a person has to do, and the command for it; nothing if the job goes on."""
    if not _needs_person(line):
        return
    yield from _where_to_look(line)
    if line["furthest_saved"]:
        yield f"Check that the checkpoint of step {count(line['furthest_saved'])} is complete.", ""
    yield "Submit the job again, or launch it again. That gives it all retries.", ""


def _where_to_look(line: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what to look into: the machine, or the program if machines had the same cause."""
    failed = [row for row in line["attempts"] if row["cause"] and row["ended"] == "failed"]
    same = [row for row in failed if is_same_cause(row["cause"], line["cause"] or "")]
    blamed = sorted({machine for row in same for machine in row["blamed"]})
    repeated = f"{len(same)} attempts ended by the same cause"
    if line["machine"] is not None:
        yield f"Have {line['machine']} checked: the evidence names it as the cause.", ""
    elif len(same) > 1 and len(blamed) == 1:
        yield f"{repeated} on {blamed[0]}: have it checked.", ""
    elif len(same) > 1:
        where = f" on {compress(blamed)}" if blamed else ""
        yield f"{repeated}{where}: look into the program, its data and its last changes.", ""
    command = f"forewarn diagnose run --job {shlex.quote(line['evidence'])}"
    yield "Read the evidence of the last attempt:", command


def _tiles(line: Mapping[str, Any]) -> list[tuple[str, str]]:
    budget = line["budget"]
    return [
        (f"{budget['left']} of {budget['retries']}", "retries left for unknown causes"),
        (f"{budget['restarts']} of {budget['most']}", f"such restarts within {budget['within']}"),
        (count(line["furthest_saved"]), "steps in the furthest checkpoint"),
        (count(len(line["attempts"])), "attempts"),
    ]


def _latest(
    attempts: Sequence[Mapping[str, Any]],
) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the last attempts with their numbers, the latest first."""
    return list(enumerate(attempts, start=1))[-_MAX_LISTED:][::-1]


def _row(row: Mapping[str, Any], number: int) -> dict[str, Any]:
    first, last = row["first_step"], row["last_step"]
    steps = count(first) if first == last else f"{count(first)} to {count(last)}"
    return {
        "number": number,
        "begin": row["begin"],
        "span": _span(row["begin"], row["end"]),
        "rung": "the first start" if number == 1 else RUNG_NOUNS[row["rung"]].lower(),
        "machines": compress(row["machines"]) or NO_VALUE,
        "steps": "none" if first is None else steps,
        "ended": row["ended"],
        "cause": row["cause"] or NO_VALUE,
        "blamed": ", ".join(row["blamed"]) or NO_VALUE,
    }


def _span(begin: str, end: str | None) -> str:
    if end is None:
        return "it runs"
    return format_duration(round((parse_moment(end) - parse_moment(begin)) / SECOND))
