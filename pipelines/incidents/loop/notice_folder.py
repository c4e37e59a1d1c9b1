"""Notices to jobs, as one file a job in a folder that the site mounts into its jobs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from forewarn.features.errors import InputError
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.atomic_files import write_atomic
from forewarn.pipelines.storage.files.regular_files import require_regular
from forewarn.response.follow_up.job_notices import JobNotice, MachineNotice

__all__ = ["notice_text", "record_answers", "write_notices"]

_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,200}")
_KEYS = {"job", "save_now", "machines"}
_MAX_ANSWER_BYTES = 1024
RecordAnswer = Callable[[str, int | None], None]


def notice_text(notice: JobNotice) -> str:
    """Return a notice as JSON; it changes only if something about the machines changes."""
    machines = [_machine_entry(entry) for entry in notice.machines]
    return json.dumps({"job": notice.job, "save_now": notice.save_now, "machines": machines})


def _machine_entry(entry: MachineNotice) -> dict[str, Any]:
    return {
        "machine": entry.machine,
        "state": entry.state.value,
        "why": entry.why,
        "since": format_iso(entry.since),
        "leaves_at": None if entry.leaves_at is None else format_iso(entry.leaves_at),
    }


def write_notices(folder: Path, notices: Iterable[JobNotice]) -> None:
    """Write the notices that have changed, and remove those that no longer apply.

    A folder that cannot be written must not delay a drain: that is a note.

    Parameters
    ----------
    folder : Path
        Receives `JOB.json`; a slash in the name of a job becomes two underscores.
    notices : iterable of JobNotice
        Of all jobs.
    """
    texts = {_file_name(notice.job): notice_text(notice) for notice in notices}
    try:
        _write_changed(folder, texts)
    except OSError as error:
        note(f"notices to jobs were not written: {folder}: {error.strerror}")


def record_answers(folder: Path, jobs: Iterable[str], record: RecordAnswer) -> None:
    """Record the answers of jobs that were asked to save, and remove them.

    An answer is removed only after it is recorded: a responder that is killed in between records it
    again, which changes nothing. A file that is no answer is a note.

    Parameters
    ----------
    folder : Path
        May hold `JOB.answer`, JSON with `step`: that of the checkpoint, or null if none was saved.
    jobs : iterable of str
        Running jobs; answers of others stay.
    record : callable
        Is given the job and the step.
    """
    for job in jobs:
        path = folder / f"{_stem(job)}.answer"
        if not _JOB.fullmatch(path.name) or not path.is_file():
            continue
        try:
            require_regular(path)
            step = _read_step(path)
        except (InputError, OSError, ValueError) as error:
            note(f"an answer of job {job} cannot be read: {error}")
            continue
        record(job, step)
        with suppress(OSError):
            path.unlink()


def _read_step(path: Path) -> int | None:
    if path.stat().st_size > _MAX_ANSWER_BYTES:
        raise ValueError(f"{path.name} is larger than {_MAX_ANSWER_BYTES} bytes")
    content = json.loads(path.read_text(encoding="utf-8"))
    step = content.get("step", "") if isinstance(content, dict) else ""
    if step is None or (type(step) is int and 0 <= step < 2**62):
        return step
    raise ValueError(f'{path.name}: expected {{"step": N}} or {{"step": null}}')


def _stem(job: str) -> str:
    return job.replace("/", "__")


def _file_name(job: str) -> str:
    return f"{_stem(job)}.json"


def _write_changed(folder: Path, texts: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        if not _JOB.fullmatch(name):
            note(f"no notice to a job named {name[:100]!r}")
        elif _read(folder / name) != text:
            write_atomic(folder / name, text.encode())
    for path in folder.glob("*.json"):
        if path.name not in texts and _is_notice(path):
            path.unlink(missing_ok=True)


def _read(path: Path) -> str:
    with suppress(OSError, ValueError):
        return path.read_text()
    return ""


def _is_notice(path: Path) -> bool:
    """Tell whether a file is a notice: the folder may hold files of others."""
    with suppress(ValueError):
        content = json.loads(_read(path))
        return isinstance(content, dict) and content.keys() == _KEYS
    return False
