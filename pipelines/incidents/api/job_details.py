"""Answers about one job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from forewarn.pipelines.incidents.api.api_models import ActionAnswer, IncidentAnswer
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.storage.files.regular_files import matching_paths
from forewarn.response.state.action import Action

__all__ = ["JobAnswer", "read_verdicts", "recent_verdicts"]

_MAX_INCIDENTS: Final = 50
_MAX_VERDICT_BYTES: Final = 4 << 20
_MAX_VERDICTS: Final = 20
_MAX_RECENT_FILES: Final = 50


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class JobAnswer(_Answer):
    """What is known of a job: verdicts, incidents and actions."""

    job: str
    verdicts: tuple[dict[str, Any], ...] = Field(
        description="Lines of `forewarn diagnose run --json`, newest first."
    )
    incidents: tuple[IncidentAnswer, ...] = Field(description="With a finding about it.")
    actions: tuple[ActionAnswer, ...] = Field(description="On machines that ran it, newest first.")
    gpus: int | None = Field(description="Of the job, as at the last action.")

    @classmethod
    def read(
        cls, job: str, ledger: Ledger, recent: Sequence[Action], verdicts: Sequence[dict[str, Any]]
    ) -> Self | None:
        """Return what is known of a job; None if nothing names it."""
        incidents = ledger.incidents_of_job(job, _MAX_INCIDENTS)
        actions = {a.id: a for a in recent if a.job == job}
        actions |= {a.id: a for incident in incidents for a in incident.actions}
        if not (incidents or actions or verdicts):
            return None
        newest = [actions[number] for number in sorted(actions, reverse=True)]
        return cls(
            job=job,
            verdicts=tuple(verdicts),
            incidents=tuple(map(IncidentAnswer.from_incident, incidents)),
            actions=tuple(map(ActionAnswer.model_validate, newest[:_MAX_INCIDENTS])),
            gpus=next((a.job_gpus for a in newest if a.job == job and a.job_gpus), None),
        )


def read_verdicts(job: str, sources: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the verdicts of a job from files of verdicts, newest first.

    Parameters
    ----------
    job : str
    sources : iterable of Path
        Files, and folders of files, of lines of `forewarn diagnose run --json`.
    """
    lines = (line for file in _files(sources) for line in _json_lines(file))
    verdicts = [line for line in lines if line.get("job") == job]
    verdicts.sort(key=lambda line: str(line.get("at") or ""), reverse=True)
    return verdicts[:_MAX_VERDICTS]


def recent_verdicts(sources: Iterable[Path], since: str) -> list[dict[str, Any]]:
    """Return the newest verdict of each job, newest first, of those made since a time.

    Only the files that were changed last are read.

    Parameters
    ----------
    sources : iterable of Path
        As for `read_verdicts`.
    since : str
        ISO 8601 in UTC.
    """
    files = sorted(_files(sources), key=_changed_at, reverse=True)[:_MAX_RECENT_FILES]
    lines = [line for file in files for line in _json_lines(file)]
    lines = [line for line in lines if line.get("job") and str(line.get("at") or "") >= since]
    lines.sort(key=lambda line: str(line["at"]))
    newest = {str(line["job"]): line for line in lines}
    return sorted(newest.values(), key=lambda line: str(line["at"]), reverse=True)


def _files(sources: Iterable[Path]) -> Iterator[Path]:
    for source in sources:
        yield from matching_paths(source, "[!.]*.json*") if source.is_dir() else [source]


def _changed_at(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _json_lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        if not file.is_file() or file.stat().st_size > _MAX_VERDICT_BYTES:
            return
        texts = file.read_bytes().splitlines()
    except OSError:
        return
    for text in texts:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict):
            yield line
