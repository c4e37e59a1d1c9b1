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

__all__ = ["JobAnswer", "read_verdicts"]

_MAX_INCIDENTS: Final = 50
_MAX_VERDICT_BYTES: Final = 4 << 20
_MAX_VERDICTS: Final = 20


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
    verdicts = []
    for source in sources:
        files = matching_paths(source, "[!.]*.json*") if source.is_dir() else [source]
        for file in files:
            verdicts += [line for line in _json_lines(file) if line.get("job") == job]
    verdicts.sort(key=lambda line: str(line.get("at") or ""), reverse=True)
    return verdicts[:_MAX_VERDICTS]


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
