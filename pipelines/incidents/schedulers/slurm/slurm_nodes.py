"""What `scontrol show node -o` says of nodes, read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.response.state.machine import MARK_PREFIX, Machine, ServiceState

__all__ = ["AVOID_WEIGHT", "SlurmNode", "parse_nodes"]

AVOID_WEIGHT = 1 << 23
"""Added to the weight of a node that new jobs are to avoid; Slurm looks at 24 bits of it.

One number holds that we have set it and what it was, so the two cannot come apart: whatever loses
the one (a restart of the controller takes weights from its configuration) loses the other, too.
"""

# The fields before `Reason` hold no free text but that of `OS`; what follows it does.
_NAME = re.compile(r"NodeName=(\S+) ")
_FIELD = re.compile(r" ([A-Z]\w*)=(\S*)")
_REASON = re.compile(r" Reason=(.*?) \[([^\s\[\]@]*)@(\S+?)\](?: |$)", re.DOTALL)
_GPU = re.compile(r"gpu(?::[^:,()]+)*?(?::(\d+))?(?:\([^)]*\))?", re.ASCII)
_FEATURE = re.compile(r"(forewarn|rack|switch)[=_:](.+)")

_SILENT = "Not responding"  # what Slurm says of a node that went down; behind a reason with " : "

_DOWN = frozenset({"DOWN", "ERROR", "INVAL", "INVALID_REG"})
_CLOSED = frozenset({
    *("DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "MAINT", "MAINTENANCE"),
    *("REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED"),
})  # fmt: skip
# Of these a node has its reason; a reservation for maintenance gives it none.
_WITH_REASON = _DOWN | (_CLOSED - {"MAINT", "MAINTENANCE"})
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING", "ALLOC", "MIX", "COMP", "DRAINING"})
_OPEN = frozenset({
    *("IDLE", "ALLOCATED", "MIXED", "RESERVED", "PLANNED", "COMPLETING", "ALLOC", "MIX", "COMP"),
    *("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP"),
})  # fmt: skip
_MARKS = {"*": "NOT_RESPONDING", "$": "MAINTENANCE", "@": "REBOOT"}
# Such a node may be made anew under its name; of all others the controller remembers everything.
_NOT_LASTING = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node, as the controller describes it.

    Attributes
    ----------
    name : str
    flags : frozenset of str
        Parts of its state, such as `IDLE` and `DRAIN`.
    reason, reason_by : str
    reason_at : int or None
        Nanoseconds since 1970 UTC.
    weight, gpus : int
    features, partitions : tuple of str
    boot : str
        Of a node that may be made anew; empty for all others.
    """

    name: str
    flags: frozenset[str]
    reason: str = ""
    reason_by: str = ""
    reason_at: Nanoseconds | None = None
    weight: int = 1
    gpus: int = 0
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    boot: str = ""

    @property
    def drained(self) -> bool:
        """Tell whether it is set to drain, whatever still runs on it."""
        return not self.flags.isdisjoint({"DRAIN", "DRAINED", "DRAINING"})

    @property
    def down(self) -> bool:
        """Tell whether it was set down, or does not answer for so long that it counts as down."""
        return not self.flags.isdisjoint(_DOWN)

    @property
    def closed(self) -> bool:
        """Tell whether it takes no jobs because somebody wants it so."""
        return self.down or not self.flags.isdisjoint(_CLOSED)

    @property
    def avoided(self) -> bool:
        """Tell whether we have raised its weight."""
        return AVOID_WEIGHT <= self.weight < 2 * AVOID_WEIGHT

    @property
    def action(self) -> int | None:
        """Number of our action that its reason names."""
        return Machine(self.name, ServiceState.DRAINED, self.reason).action

    def machine(
        self,
        jobs: Iterable[str] = (),
        *,
        pools: Mapping[str, str],
        switch: str | None = None,
        reservation: str = "",
    ) -> Machine:
        """Return what a driver says of it.

        Parameters
        ----------
        jobs : iterable of str
        pools : mapping of str to str
            Partition of each pool; the first that has the node counts.
        switch : str or None
        reservation : str
            Reason of a reservation that keeps other jobs away; empty: there is none.
        """
        running = tuple(jobs)
        labels = self._labels()
        state = self._state(bool(running), bool(reservation))
        marks = "" if self.drained or self.down or not reservation else reservation
        standing = self._standing_reason()
        out = state is not ServiceState.IN_SERVICE
        return Machine(
            name=self.name,
            state=state,
            reason=(marks or standing) if out else "",
            jobs=running,
            gpus=self.gpus,
            avoided=self.avoided,
            pool=next((pool for pool, part in pools.items() if part in self.partitions), None),
            rack=labels.get("rack"),
            switch=labels.get("switch", switch),
            labels=labels,
            boot=self.boot,
            reason_by=self.reason_by if standing and not marks else "",
            reason_at=self.reason_at if standing and not marks else None,
        )

    def _standing_reason(self) -> str:
        """Return the reason of what has the node out of service now; empty if there is none.

        A node that was resumed may keep its reason (in Slurm 24.11 without slurmdbd until the next
        one is set), and that says nothing then: neither when it is in service, nor as the begin of
        the reason for which it goes down later.
        """
        if self.flags.isdisjoint(_WITH_REASON):
            return ""
        if not self.drained and self.reason.endswith(f" : {_SILENT}"):
            return _SILENT
        return "" if self.reason.startswith(MARK_PREFIX) and not self.drained else self.reason

    def _state(self, has_jobs: bool, reserved: bool) -> ServiceState:
        if self.down:
            return ServiceState.DOWN
        if "UNKNOWN" in self.flags or self.flags.isdisjoint(_OPEN | _CLOSED):
            return ServiceState.UNKNOWN
        if reserved or self.closed:
            busy = has_jobs or not self.flags.isdisjoint(_BUSY)
            return ServiceState.DRAINING if busy else ServiceState.DRAINED
        # So is each node for a moment after it was resumed; one that stays so Slurm sets down.
        silent = "NOT_RESPONDING" in self.flags
        return ServiceState.UNKNOWN if silent else ServiceState.IN_SERVICE

    def _labels(self) -> dict[str, str]:
        """Return features as labels: `rack=r7`, `rack_r7` and `rack:r7` say the same."""
        labels: dict[str, str] = {}
        for feature in self.features:
            match = _FEATURE.fullmatch(feature)
            name, _, value = feature.partition("=")
            labels |= {match[1]: match[2]} if match else {name: value}
        return labels


def parse_nodes(text: str) -> list[SlurmNode]:
    """Read the answer of `scontrol show node -o`, made in UTC.

    A reason of several lines continues without a name at the begin of its lines; only the first
    line of it is read.

    Raises
    ------
    ValueError
        If a node has no state, or a name comes twice.
    """
    lines = [line for line in text.split("\n") if _NAME.match(line)]
    nodes = [_node(line) for line in lines]
    names = {node.name for node in nodes}
    if len(names) < len(nodes):
        raise ValueError("scontrol names a node twice")
    return nodes


def _node(line: str) -> SlurmNode:
    match = _NAME.match(line)
    assert match is not None
    reason = _REASON.search(line)
    begin = line.find(" Reason=") if reason is None else reason.start()
    # The last `State=` is that of Slurm: `OS` stands before it, and its text is the node's own.
    fields = dict(_FIELD.findall(line if begin < 0 else line[:begin]))
    if not fields.get("State"):
        raise ValueError(f"scontrol says no state of {match[1][:100]!r}")
    flags = _flags(fields["State"])
    weight = fields.get("Weight", "1")
    return SlurmNode(
        match[1],
        flags,
        *_reason(reason, line, begin),
        weight=int(weight) if weight.isascii() and weight.isdigit() else 1,
        gpus=_gpus(fields.get("Gres", "")),
        features=_names(fields.get("ActiveFeatures", "")),
        partitions=_names(fields.get("Partitions", "")),
        boot="" if flags.isdisjoint(_NOT_LASTING) else fields.get("SlurmdStartTime", ""),
    )


def _reason(
    match: re.Match[str] | None, line: str, begin: int
) -> tuple[str, str, Nanoseconds | None]:
    """Return the reason, who has set it and when."""
    if match is None:
        return ("" if begin < 0 else line[begin:].removeprefix(" Reason=").strip()), "", None
    try:
        at = Nanoseconds(parse_moment(match[3]))
    except ValueError:
        return match[1], match[2], None
    return match[1], match[2], at


def _flags(state: str) -> frozenset[str]:
    """Return the parts of `IDLE+DRAIN`, `DOWN*` and alike."""
    flags = set()
    for part in state.upper().split("+"):
        flags.add(part.rstrip("*~#!%$@^-"))
        flags.update(flag for mark, flag in _MARKS.items() if mark in part)
    return frozenset(flags - {""})


def _gpus(gres: str) -> int:
    """Return the GPUs of `gpu:h100:8(S:0-1),shard:16`."""
    counts = re.sub(r"\([^)]*\)", "", gres).split(",")
    matches = [_GPU.fullmatch(count) for count in counts]
    return sum(int(match[1] or 1) for match in matches if match)


def _names(text: str) -> tuple[str, ...]:
    return () if text in {"", "(null)"} else tuple(text.split(","))
