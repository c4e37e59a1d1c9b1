"""Causes of jitter: what ranks do more of in slow spans than in normal ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from forewarn.features.diagnosis.ranks import format_ranks
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import (
    STRONG,
    CulpritCandidate,
    Evidence,
    JobFinding,
)

__all__ = ["Profile", "jitter_finding"]

# Causes by frame name, first match wins. Waits for other ranks are excluded: off CPU they are not
# the rank's own, and on CPU collectives spin.
_COLLECTIVE_FRAMES = re.compile(
    r"(?i)all_?reduce|all_?gather|reduce_?scatter|barrier|nccl|gloo|c10d|irecv"
)
_CAUSES: Mapping[str, re.Pattern[str]] = {
    "garbage collection": re.compile(r"(?i)gc_collect|gc\.collect|_PyGC_|collect_generations"),
    "checkpoint writer": re.compile(r"(?i)checkpoint|save_state|torch/serialization|_save\b"),
    "page faults and remote memory": re.compile(
        r"(?i)page_fault|do_anonymous_page|handle_mm_fault|numa|migrate_pages|compact_zone|tlb"
    ),
    "data loader": re.compile(r"(?i)dataloader|data_loader|_next_data|_try_get_data|dataset"),
    "lock waits": re.compile(r"(?i)futex|mutex|lll_lock|pthread_cond|semaphore|\block\b|acquire"),
    "neighbours on the CPU": re.compile(r"(?i)preempt|involuntary|cfs_throttl|steal|migration/"),
}
_FAULTS: Mapping[str, Fault] = {
    "garbage collection": Fault(
        "application", "collect garbage at the same step on all ranks, instead of automatically"
    ),
    "checkpoint writer": Fault("application", "write checkpoints in the background, or less often"),
    "page faults and remote memory": Fault(
        "node", "bind the processes to their NUMA node, and check free memory and huge pages"
    ),
    "data loader": Fault(
        "application", "speed up the data loader: more workers, prefetching, or faster storage"
    ),
    "lock waits": Fault("application", "find the lock in the stacks of the slow spans"),
    "neighbours on the CPU": Fault(
        "node", "end or limit the other processes on the machine, and bind the ranks to CPUs"
    ),
}
_MIN_GROWTH, _MIN_GROWTH_FACTOR = (
    0.05,
    1.5,
)  # minimum growth of the share, absolute and relative to normal spans
_OUTLIER_FACTOR = 2.0  # times the median growth: the cause is then specific to this rank
_MIN_SAMPLES = 20  # per span of a profile

StackCounts = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Profile:
    """Folded stacks of a rank in normal and slow spans.

    Attributes
    ----------
    rank : int
    clock : str
        `on` or `off` CPU.
    normal, slow : mapping of tuple to float
        Sample counts by stack, outermost frame first.
    """

    rank: int
    clock: Literal["on", "off"]
    normal: StackCounts
    slow: StackCounts


@dataclass(frozen=True, slots=True)
class _Growth:
    rank: int
    clock: str
    cause: str
    before: float
    after: float
    frame: str

    @property
    def by(self) -> float:
        return self.after - self.before

    def evidence(self) -> Evidence:
        says = (
            f"{self.cause}: {self.after:.0%} of the {self.clock}-CPU time of rank {self.rank} in "
            f"slow spans, {self.before:.0%} in normal ones, mostly in {self.frame}"
        )
        details = {"share": self.after, "normal_share": self.before, "frame": self.frame}
        return Evidence("profiles", says, self.rank, None, details)


def jitter_finding(profiles: Iterable[Profile]) -> JobFinding | None:
    """Return what grew in slow spans, and on which rank, or None if nothing did.

    On-CPU and off-CPU counts have different units, so shares are computed for each separately. If
    the growth is similar on most ranks, there is no candidate.

    Parameters
    ----------
    profiles : iterable of Profile
    """
    measured = list(profiles)
    growths = [growth for profile in measured for growth in _growths(profile)]
    usual = {
        key: _median_growth(key, growths, measured) for key in {(g.clock, g.cause) for g in growths}
    }
    large = [growth for growth in growths if growth.by >= _MIN_GROWTH and _is_larger(growth)]
    if not large:
        return None
    own = [
        g
        for g in large
        if g.by >= _OUTLIER_FACTOR * max(usual[g.clock, g.cause], _MIN_GROWTH / _OUTLIER_FACTOR)
    ]
    top = max(own or large, key=lambda growth: growth.by)
    evidence = tuple(g.evidence() for g in sorted(own or large, key=lambda g: -g.by)[:8])
    if not own:
        ranks = sorted({growth.rank for growth in large})
        cause = f"{top.cause} on {format_ranks(ranks)}: {top.after:.0%} instead of {top.before:.0%}"
        return JobFinding("jitter", cause, evidence=evidence, fault=_fault(top))
    best = {g.rank: g for g in sorted(own, key=lambda growth: growth.by)}
    candidates = tuple(
        CulpritCandidate(
            rank,
            _why(growth),
            STRONG * growth.by / top.by if rank != top.rank else STRONG,
            fault=_fault(growth),
        )
        for rank, growth in sorted(best.items(), key=lambda item: -item[1].by)
    )
    return JobFinding("jitter", _why(top), candidates, evidence=evidence)


def _is_larger(growth: _Growth) -> bool:
    return growth.after >= _MIN_GROWTH_FACTOR * growth.before


def _fault(growth: _Growth) -> Fault:
    unknown = Fault("application", f"find out why the time in {growth.frame} grows")
    return _FAULTS.get(growth.cause, unknown)


def _why(growth: _Growth) -> str:
    return f"{growth.cause} {growth.clock} CPU: {growth.after:.0%} instead of {growth.before:.0%}"


def _median_growth(key: tuple[str, str], growths: list[_Growth], profiles: list[Profile]) -> float:
    """Return the median growth of a cause over the ranks, or 0 with at most two ranks."""
    by_rank = {growth.rank: growth.by for growth in growths if (growth.clock, growth.cause) == key}
    ranks = {profile.rank for profile in profiles if profile.clock == key[0]}
    return float(np.median([by_rank.get(rank, 0.0) for rank in ranks])) if len(ranks) > 2 else 0.0


def _growths(profile: Profile) -> Iterable[_Growth]:
    totals = sum(profile.normal.values()), sum(profile.slow.values())
    if min(totals) < _MIN_SAMPLES:
        return
    before, after = _by_cause(profile.normal), _by_cause(profile.slow)
    for cause in after.keys() | before.keys():
        frames = after.get(cause, Counter())
        shares = sum(before.get(cause, Counter()).values()) / totals[0], frames.total() / totals[1]
        frame = frames.most_common(1)[0][0] if frames else ""
        yield _Growth(profile.rank, profile.clock, cause, *shares, frame)


def _by_cause(stacks: StackCounts) -> dict[str, Counter[str]]:
    """Return sample counts of each cause by innermost frame; each stack counts once."""
    causes: dict[str, Counter[str]] = {}
    for stack, count in stacks.items():
        cause = _classify_stack(stack)
        if cause is not None:
            causes.setdefault(cause, Counter())[stack[-1]] += int(count)
    return causes


def _classify_stack(stack: tuple[str, ...]) -> str | None:
    """Return the cause of a stack: a known one, or else its innermost frame."""
    if not stack or any(_COLLECTIVE_FRAMES.search(frame) for frame in stack):
        return None
    for cause, pattern in _CAUSES.items():
        if any(pattern.search(frame) for frame in stack):
            return cause
    return stack[-1]
