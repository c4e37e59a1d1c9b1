"""The story of an incident, from the first finding to the outcome, with who did what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.console.page_words import action_state, state_of
from forewarn.pipelines.incidents.ledger.incident_summaries import IncidentChange
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.response.state.finding import Finding
from forewarn.response.state.incident import Incident

__all__ = ["StoryEntry", "incident_story"]

_MAX_ENTRIES: Final = 300
_MAX_EVIDENCE: Final = 300  # characters


class StoryEntry(NamedTuple):
    """One entry; `at` in nanoseconds since 1970 UTC."""

    at: Nanoseconds
    shape: str
    who: str
    what: str
    detail: str


def incident_story(
    incident: Incident, changes: Iterable[IncidentChange], ledger: Ledger
) -> list[StoryEntry]:
    """Return the newest entries of an incident, oldest first."""
    entries = [
        *map(_finding, incident.findings),
        *_decisions(incident, ledger),
        *_actions(incident, ledger),
        *_changes(changes),
    ]
    return sorted(entries, key=lambda entry: entry.at)[-_MAX_ENTRIES:]


def _finding(finding: Finding) -> StoryEntry:
    about = f" about GPU {finding.gpu_serial}" if finding.gpu_serial else ""
    about += f" in job {finding.job}" if finding.job else ""
    repeats = f", {finding.count} reports" if finding.count > 1 else ""
    evidence = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in finding.evidence.items()
        if value not in (None, "")
    )
    what = f"finding: {finding.cause} on {finding.machine}{about}{repeats}"
    return StoryEntry(finding.at, "●", finding.source, what, evidence[:_MAX_EVIDENCE])


def _decisions(incident: Incident, ledger: Ledger) -> Iterator[StoryEntry]:
    for decision in ledger.decisions(incident.id):
        state = state_of("ruling", decision.ruling.value)
        holdout = ", holdout" if decision.control else ""
        what = f"decision: {decision.step.value}, {state.word}{holdout}"
        yield StoryEntry(decision.at, state.shape, decision.who, what, decision.reason)


def _actions(incident: Incident, ledger: Ledger) -> Iterator[StoryEntry]:
    for action in incident.actions:
        for change in ledger.action_states(action.id):
            state = action_state(action.step, change.state)
            what = f"{action.step.value} of {action.machine}: {state.word}"
            yield StoryEntry(change.at, state.shape, change.who, what, change.detail)


def _changes(changes: Iterable[IncidentChange]) -> Iterator[StoryEntry]:
    for change in changes:
        kind, _, value = change.what.partition(" ")
        if value:
            state = state_of(kind, value)
            what = f"outcome: {state.word}"
        else:
            state = state_of("incident", kind)
            what = state.word
        yield StoryEntry(change.at, state.shape, change.who, what, change.detail)
