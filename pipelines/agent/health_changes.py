"""Changes of the health of GPUs, as the tool of their vendor reports it at each poll."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from forewarn.features.telemetry.checks.check_result import CheckResult
from forewarn.features.telemetry.telemetry_rows import HostState, check_row
from forewarn.features.time_units import HOUR
from forewarn.pipelines.agent.gpu_inventory import gpu_key

__all__ = ["HealthChanges"]

_REPEAT_AFTER = HOUR  # a failure is sent again, because silence is not health
_Key = tuple[str, str, str]


@dataclass(slots=True)
class HealthChanges:
    """Memory of what each GPU reported last, so that only changes are events."""

    _bad: dict[_Key, CheckResult] = field(default_factory=dict)
    _sent: dict[_Key, int] = field(default_factory=dict)

    def rows(self, results: Iterable[CheckResult], host: HostState) -> list[dict[str, Any]]:
        """Return a row for each check that fails from now on, and for each that ended.

        Parameters
        ----------
        results : iterable of CheckResult
            Of one poll, with the GPU of each. A check ended if a GPU without failed checks no
            longer reports it, or one that reports others of its kind.
        host : HostState
        """
        known = list(results)
        bad = {_key(result): result for result in known if result.severity != "ok"}
        healthy = {_key(result)[0] for result in known} - {key[0] for key in bad}
        read = {key[:2] for key in bad}
        changed = {key: r for key, r in bad.items() if self._is_due(key, r, host.time)}
        ended = {
            key: replace(result, severity="ok", text=f"{result.check} is no longer reported")
            for key, result in self._bad.items()
            if key not in bad and (key[0] in healthy or key[:2] in read)
        }
        self._bad = {key: r for key, r in self._bad.items() if key not in ended} | bad
        self._sent |= dict.fromkeys(changed, host.time)
        rows = [check_row(result, host) for result in (*changed.values(), *ended.values())]
        return [{name: value for name, value in row.items() if name != "slot"} for row in rows]

    def _is_due(self, key: _Key, result: CheckResult, time: int) -> bool:
        before = self._bad.get(key)
        is_same = before is not None and before.severity == result.severity
        return not is_same or time - self._sent[key] >= _REPEAT_AFTER


def _key(result: CheckResult) -> _Key:
    return "" if result.gpu is None else gpu_key(result.gpu), result.kind, result.check
