from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.alert_cache import AlertCache
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.incident import Incident, IncidentState, Outcome

NOW = Nanoseconds(400 * DAY)


def _open_incident(ledger: Ledger, machine: str, at: Nanoseconds) -> int:
    valid_until = Nanoseconds(at + DAY)
    kind = FindingKind.AT_RISK
    finding = Finding("lists", machine, kind, "at_risk", machine, at, valid_until=valid_until)
    ledger.record_findings([finding], now=at)
    return ledger.incidents(limit=1)[0].id


def test_ended_incidents_are_read_once_per_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        old, ended, still_open = (
            _open_incident(ledger, name, Nanoseconds(NOW - age * DAY))
            for name, age in (("old", 370), ("ended", 3), ("open", 2))
        )
        for number in (old, ended):
            ledger.end_incident(number, IncidentState.CLOSED, now=NOW, who="ann", why="")
        cache, read, by_number = AlertCache(ledger), [], ledger.by_number

        def spy(numbers: Sequence[int]) -> list[Incident]:
            read.append(list(numbers))
            return by_number(numbers)

        monkeypatch.setattr(ledger, "by_number", spy)
        since = Nanoseconds(NOW - 365 * DAY)
        assert [entry.alert.machine for entry in cache.alerts_since(since)] == ["open", "ended"]
        cache.alerts_since(since)
        times = {"failed_at": Nanoseconds(NOW - DAY), "known_at": NOW}
        ledger.outcome(ended, Outcome.CONFIRMED, now=NOW, who="ann", why="", **times)
        entries = cache.alerts_since(since)
        assert read == [[still_open, ended], [still_open], [still_open, ended]]
        assert entries == AlertCache(ledger).alerts_since(since)
        assert (entries[1].alert.outcome, entries[1].alert.failed_at) == (
            Outcome.CONFIRMED,
            NOW - DAY,
        )
