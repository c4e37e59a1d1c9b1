"""Hangs of simulated jobs: each is simulated as a folder of a job, and diagnosed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.diagnosis.diagnose_job import diagnose
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment
from forewarn.pipelines.sandbox.simulate_job import simulate_job_to

__all__ = ["diagnose_hang"]

_RANKS: Final = 16
_TIMES: Final = ("since", "detected_at", "at", "time")


def diagnose_hang(
    folder: Path, job: str, machines: Sequence[str], broken: str, at: Nanoseconds, seed: int
) -> dict[str, Any]:
    """Simulate a job that hangs on a machine, diagnose its folder, and return the verdict.

    Machines and times of the simulated folder are replaced by those of the simulated cluster;
    everything else is what `forewarn diagnose run` says.

    Parameters
    ----------
    folder : Path
        Of the job; it is deleted afterwards.
    job : str
    machines : sequence of str
        Machines of the job, two at least are used.
    broken : str
        The machine that stops.
    at : int
        When it stops, nanoseconds since 1970 UTC.
    seed : int
    """
    truth = simulate_job_to(folder, _RANKS, "machine", seed)
    try:
        line = diagnose(folder).line()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    others = [name for name in machines if name != broken]
    names = dict.fromkeys(line["machines"], "")
    names[truth["machine"]] = broken
    for name in names:
        names[name] = names[name] or (others.pop(0) if others else name)
    shift = at - parse_moment(truth["since"])
    return _moved(line, names, shift) | {"job": job, "files": []}


def _moved(line: dict[str, Any], names: Mapping[str, str], shift: int) -> dict[str, Any]:
    """Return a verdict with other machines and times."""
    pattern = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in names) or "$^")
    text = pattern.sub(lambda match: names[match[0]], json.dumps(line))
    return _later(json.loads(text), shift)  # type: ignore[no-any-return]


def _later(value: Any, shift: int) -> Any:
    if isinstance(value, list):
        return [_later(item, shift) for item in value]
    if isinstance(value, dict):
        return {
            key: format_iso(parse_moment(item) + shift)
            if key in _TIMES and isinstance(item, str)
            else _later(item, shift)
            for key, item in value.items()
        }
    return value
