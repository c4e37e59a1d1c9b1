"""Verdicts of `forewarn diagnose run`, `watch` and `nodes`, as files hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from forewarn.features.evidence_kind import EvidenceKind
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.sources.verdict_lines import parse_verdict_lines
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.files.regular_files import matching_paths

__all__ = ["NODES", "DiagnosisVerdict", "diagnosis_files", "read_diagnoses"]

NODES: Final = "nodes"
"""Source, subject and kind of a check of nodes."""

_COMMAND: Final = "forewarn diagnose run --json"
_FAULTY_STATES: Final = ("failed", "slow")
_MAX_TEXT_CHARS: Final = 1000
_SUFFIXES: Final = (".json", ".jsonl")


@dataclass(frozen=True, slots=True)
class DiagnosisVerdict:
    """A verdict on a job, or a check of nodes.

    Attributes
    ----------
    source : str
        `diagnose`, or `nodes` for a check of nodes.
    subject : str
        Name of the job; `nodes` for a check of nodes.
    kind : str
        As printed; `nodes` for a check of nodes.
    at : int
        When it was certain, in nanoseconds since 1970 UTC; for a check of nodes, when its file was
        written.
    culprits : mapping of str to mapping
        Evidence by machine.
    seen : frozenset of str
        Machines that it judged; without a culprit, those that are no candidates either.
    is_conclusive : bool
        It names a culprit or saw the job work.
    read : tuple of str
        Kinds of evidence.
    """

    source: str
    subject: str
    kind: str
    at: Nanoseconds
    culprits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    is_conclusive: bool = False
    read: tuple[str, ...] = ()


def diagnosis_files(path: Path, since: Nanoseconds) -> list[Path]:
    """Return a file, or the `.json` and `.jsonl` files of a folder, if changed since a time.

    Raises
    ------
    UnreadableFolderError
        If a folder cannot be listed.
    """
    files = [path]
    if path.is_dir():
        names = matching_paths(path, "[!.]*")
        files = [file for file in names if file.suffix in _SUFFIXES and file.is_file()]
    return [file for file in files if _changed_at(file) >= since]


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def read_diagnoses(path: Path) -> list[DiagnosisVerdict]:
    """Read the verdicts of a file; of several checks of nodes, the last one counts.

    Raises
    ------
    VerdictsError
        If the file cannot be read, or none of its lines is a verdict.
    """
    changed_at = Nanoseconds(_changed_at(path))

    def parse(line: dict[str, Any]) -> DiagnosisVerdict:
        if "job" in line:
            return _of_job(line)
        return _of_nodes(line, changed_at)

    verdicts = parse_verdict_lines(path, parse, _COMMAND)
    checks = [verdict for verdict in verdicts if verdict.source == NODES]
    return [verdict for verdict in verdicts if verdict.source != NODES] + checks[-1:]


def _of_job(line: dict[str, Any]) -> DiagnosisVerdict:
    shown = {"kind": line["kind"], "since": line["since"], "cause": _shortened(line["cause"])}
    shown["next"] = _shortened(str((line.get("next") or [""])[0]))
    culprits = {
        str(row["machine"]): {**shown, "rank": row["rank"], "why": _shortened(row["why"])}
        for row in line["culprits"]
        if row["machine"] is not None
    }
    candidates = frozenset(str(row["machine"]) for row in line["also"])
    return DiagnosisVerdict(
        source="diagnose",
        subject=str(line["job"]),
        kind=str(line["kind"]),
        at=Nanoseconds(parse_moment(line["detected_at"] or line["at"])),
        culprits=culprits,
        seen=frozenset(map(str, line["machines"])) - (frozenset() if culprits else candidates),
        is_conclusive=bool(culprits) or _progresses(line),
        read=tuple(map(str, line["evidence_from"])),
    )


def _progresses(line: dict[str, Any]) -> bool:
    """Tell whether a verdict saw the job work: a job that is being killed still writes lines."""
    states = {probe["state"] for probe in line["probes"].values()}
    return line["kind"] == "none" and "active" in states and "idle" not in states


def _shortened(text: str | None) -> str:
    return (text or "")[:_MAX_TEXT_CHARS]


def _of_nodes(line: dict[str, Any], at: Nanoseconds) -> DiagnosisVerdict:
    states = {str(row["node"]): row for row in line["nodes"]}
    return DiagnosisVerdict(
        source=NODES,
        subject=NODES,
        kind=NODES,
        at=at,
        culprits={
            node: {"kind": row["state"], "factor": row["factor"]}
            for node, row in states.items()
            if row["state"] in _FAULTY_STATES
        },
        seen=frozenset(node for node, row in states.items() if row["state"] == "ok"),
        is_conclusive=True,
        read=(EvidenceKind.CHECK,),
    )
