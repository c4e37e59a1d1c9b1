"""Part `profiles/{normal,slow}/RANK.{on,off}.folded`: stacks in slow spans and in normal ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from forewarn.features.diagnosis.folded_stacks import BrokenProfileError, parse_folded
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.slow.jitter import Profile, jitter_finding
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder, JobFolderError, read_text
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot, PartResult

__all__ = ["ProfilesPart", "read_profiles"]

_NAME = re.compile(r"([0-9]{1,6})\.(on|off)\.folded", re.ASCII)
_CLOCKS: dict[str, Literal["on", "off"]] = {"on": "on", "off": "off"}


@dataclass(frozen=True, slots=True)
class ProfilesPart:
    """Profiles with both a normal and a slow span.

    Attributes
    ----------
    profiles : tuple of Profile
    notes : tuple of str
        Profiles that could not be used, with reasons.
    """

    profiles: tuple[Profile, ...]
    notes: tuple[str, ...]

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks with a profile."""
        return frozenset(profile.rank for profile in self.profiles)

    @property
    def last(self) -> None:
        """None: profiles have no times."""
        return

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Return what grew in slow spans, and on which rank."""
        del snapshot
        finding = jitter_finding(self.profiles)
        return PartResult(findings=() if finding is None else (finding,), blind=self.notes)


def read_profiles(folder: JobFolder, _: Ranks) -> ProfilesPart | None:
    """Read the profiles of a job, or return None if none has both spans.

    Raises
    ------
    JobFolderError
        If a file name contains no rank, or a file is not text.
    """
    path = folder.part("profiles")
    if path is None or not (path / "slow").is_dir() or not (path / "normal").is_dir():
        return None
    profiles, notes = [], []
    for slow in sorted((path / "slow").glob("*.folded")):
        match = _NAME.fullmatch(slow.name)
        if match is None:
            raise JobFolderError(
                f"{slow}: its name contains no rank, expected a name such as 3.off.folded."
            )
        normal = path / "normal" / slow.name
        if not normal.exists():
            notes.append(f"profiles: {slow.name} has no normal span")
            continue
        try:
            spans = _read_folded(normal), _read_folded(slow)
        except BrokenProfileError as error:
            notes.append(f"profiles: {slow.name} {error}")
            continue
        profiles.append(Profile(int(match[1]), _CLOCKS[match[2]], *spans))
    return ProfilesPart(tuple(profiles), tuple(notes[:5])) if profiles or notes else None


def _read_folded(file: Path) -> dict[tuple[str, ...], float]:
    return parse_folded(read_text(file))
