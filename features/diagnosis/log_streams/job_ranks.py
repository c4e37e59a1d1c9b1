"""Ranks of a job's writers, and what was ignored."""

from __future__ import annotations

from dataclasses import dataclass, field

from forewarn.features.diagnosis.log_streams.heard_sources import (
    HeardSource,
)

__all__ = ["JobRanks"]


@dataclass(slots=True)
class JobRanks:
    """Ranks of a job's sources.

    Attributes
    ----------
    world : int or None
        Number of ranks.
    ignored : dict of str to list of str
        Per file, what was ignored and why.
    tasks_are_ranks : bool
        Whether the numbers of the launcher's tasks are ranks.
    """

    world: int | None
    ignored: dict[str, list[str]] = field(default_factory=dict)
    tasks_are_ranks: bool = False
    _ranks: dict[int, int] = field(default_factory=dict)

    def rank(self, item: HeardSource) -> int | None:
        """Return the rank of a source, or None."""
        return self._ranks.get(id(item))

    def give(self, item: HeardSource, rank: int | None) -> None:
        """Note the rank of a source, unless it has one or the job has no such rank."""
        if rank is None or id(item) in self._ranks or rank < 0:
            return
        if self.world is not None and rank >= self.world:
            self.ignore(item, f"rank {rank}: the job has {self.world} ranks")
        else:
            self._ranks[id(item)] = rank

    def ignore(self, item: HeardSource, reason: str) -> None:
        """Note once per file what was ignored."""
        reasons = self.ignored.setdefault(item.source.name, [])
        if reason not in reasons:
            reasons.append(reason)
