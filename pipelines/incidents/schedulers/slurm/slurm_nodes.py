"""Parser of `scontrol show node -o`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.response.state.machine import MARK_PREFIX, Machine, ServiceState

__all__ = ["AVOID_WEIGHT", "SlurmNode", "parse_nodes"]

AVOID_WEIGHT = 1 << 23
"""Added to the weight of an avoided node; Slurm uses 24 bits of the weight.

The weight holds both the mark and the original value, which therefore cannot diverge: a restart of
the controller, which resets weights to its configuration, removes both.
"""

# Before `Reason` only `OS` holds free text; later fields may.
_NAME = re.compile(r"NodeName=(\S+) ")
_FIELD = re.compile(r" ([A-Z]\w*)=(\S*)")
_REASON = re.compile(r" Reason=(.*?) \[([^\s\[\]@]*)@(\S+?)\](?: |$)", re.DOTALL)
_GPU = re.compile(r"gpu(?::[^:,()]+)*?(?::(\d+))?(?:\([^)]*\))?", re.ASCII)
_FEATURE = re.compile(r"(forewarn|rack|switch)[=_:](.+)")

# Slurm's reason for a node that went down; appended to an existing reason with " : ".
_NOT_RESPONDING = "Not responding"

_DOWN = frozenset({"DOWN", "ERROR", "INVAL", "INVALID_REG"})
_CLOSED = frozenset({
    *("DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "MAINT", "MAINTENANCE"),
    *("REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED"),
})  # fmt: skip
# States to which the reason belongs; a maintenance reservation sets no reason.
_WITH_REASON = _DOWN | (_CLOSED - {"MAINT", "MAINTENANCE"})
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING", "ALLOC", "MIX", "COMP", "DRAINING"})
_OPEN = frozenset({
    *("IDLE", "ALLOCATED", "MIXED", "RESERVED", "PLANNED", "COMPLETING", "ALLOC", "MIX", "COMP"),
    *("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP"),
})  # fmt: skip
_SUFFIX_FLAGS = {"*": "NOT_RESPONDING", "$": "MAINTENANCE", "@": "REBOOT"}
# A node in these states may be recreated under its name; the controller remembers all others.
_RECREATABLE = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as the controller describes it.

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
        Start time of `slurmd` for a node that may be recreated; empty for all others.
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
        """Tell whether the node is set to drain, with or without jobs."""
        return not self.flags.isdisjoint({"DRAIN", "DRAINED", "DRAINING"})

    @property
    def down(self) -> bool:
        """Tell whether the node was set down, or counts as down because it does not answer."""
        return not self.flags.isdisjoint(_DOWN)

    @property
    def closed(self) -> bool:
        """Tell whether the node is closed for new jobs."""
        return self.down or not self.flags.isdisjoint(_CLOSED)

    @property
    def avoided(self) -> bool:
        """Tell whether forewarn raised the node's weight."""
        return AVOID_WEIGHT <= self.weight < 2 * AVOID_WEIGHT

    @property
    def action(self) -> int | None:
        """Number of the action that the reason names."""
        return Machine(self.name, ServiceState.DRAINED, self.reason).action

    def machine(
        self,
        jobs: Iterable[str] = (),
        *,
        pools: Mapping[str, str],
        switch: str | None = None,
        reservation: str = "",
    ) -> Machine:
        """Convert to a machine.

        Parameters
        ----------
        jobs : iterable of str
        pools : mapping of str to str
            Partition of each pool; the first pool that contains the node is used.
        switch : str or None
        reservation : str
            Reason of a reservation that excludes other jobs; empty if there is none.
        """
        running = tuple(jobs)
        labels = self._labels()
        state = self._state(bool(running), bool(reservation))
        reserved_for = "" if self.drained or self.down or not reservation else reservation
        outage_reason = self._outage_reason()
        out = state is not ServiceState.IN_SERVICE
        return Machine(
            name=self.name,
            state=state,
            reason=(reserved_for or outage_reason) if out else "",
            jobs=running,
            gpus=self.gpus,
            avoided=self.avoided,
            pool=next((pool for pool, part in pools.items() if part in self.partitions), None),
            rack=labels.get("rack"),
            switch=labels.get("switch", switch),
            labels=labels,
            boot=self.boot,
            reason_by=self.reason_by if outage_reason and not reserved_for else "",
            reason_at=self.reason_at if outage_reason and not reserved_for else None,
        )

    def _outage_reason(self) -> str:
        """Return the reason for the node's present outage; empty if there is none.

        A resumed node may keep its last reason (Slurm 24.11 without slurmdbd, until the next one is
        set). Such a reason is ignored: for a node in service, and as the prefix of the reason for
        which it goes down later.
        """
        if self.flags.isdisjoint(_WITH_REASON):
            return ""
        if not self.drained and self.reason.endswith(f" : {_NOT_RESPONDING}"):
            return _NOT_RESPONDING
        return "" if self.reason.startswith(MARK_PREFIX) and not self.drained else self.reason

    def _state(self, has_jobs: bool, reserved: bool) -> ServiceState:
        if self.down:
            return ServiceState.DOWN
        if "UNKNOWN" in self.flags or self.flags.isdisjoint(_OPEN | _CLOSED):
            return ServiceState.UNKNOWN
        if reserved or self.closed:
            busy = has_jobs or not self.flags.isdisjoint(_BUSY)
            return ServiceState.DRAINING if busy else ServiceState.DRAINED
        # Each node is silent for a moment after a resume; if it stays silent, Slurm sets it down.
        silent = "NOT_RESPONDING" in self.flags
        return ServiceState.UNKNOWN if silent else ServiceState.IN_SERVICE

    def _labels(self) -> dict[str, str]:
        """Return features as labels; `rack=r7`, `rack_r7` and `rack:r7` are equivalent."""
        labels: dict[str, str] = {}
        for feature in self.features:
            match = _FEATURE.fullmatch(feature)
            name, _, value = feature.partition("=")
            labels |= {match[1]: match[2]} if match else {name: value}
        return labels


def parse_nodes(text: str) -> list[SlurmNode]:
    """Parse the output of `scontrol show node -o` with times in UTC.

    A multi-line reason continues on lines that do not start with a node name; only its first line
    is read.

    Raises
    ------
    ValueError
        If a node has no state, or a name occurs twice.
    """
    lines = [line for line in text.split("\n") if _NAME.match(line)]
    nodes = [_node(line) for line in lines]
    names = {node.name for node in nodes}
    if len(names) < len(nodes):
        raise ValueError("scontrol lists a node twice")
    return nodes


def _node(line: str) -> SlurmNode:
    match = _NAME.match(line)
    assert match is not None
    reason = _REASON.search(line)
    begin = line.find(" Reason=") if reason is None else reason.start()
    # The last `State=` is Slurm's: `OS` comes before it, and its text is set by the node.
    fields = dict(_FIELD.findall(line if begin < 0 else line[:begin]))
    if not fields.get("State"):
        raise ValueError(f"scontrol shows no state of {match[1][:100]!r}")
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
        boot="" if flags.isdisjoint(_RECREATABLE) else fields.get("SlurmdStartTime", ""),
    )


def _reason(
    match: re.Match[str] | None, line: str, begin: int
) -> tuple[str, str, Nanoseconds | None]:
    """Return the reason, its author and its time."""
    if match is None:
        return ("" if begin < 0 else line[begin:].removeprefix(" Reason=").strip()), "", None
    try:
        at = Nanoseconds(parse_moment(match[3]))
    except ValueError:
        return match[1], match[2], None
    return match[1], match[2], at


def _flags(state: str) -> frozenset[str]:
    """Split a state such as `IDLE+DRAIN` or `DOWN*` into its parts."""
    flags = set()
    for part in state.upper().split("+"):
        flags.add(part.rstrip("*~#!%$@^-"))
        flags.update(flag for suffix, flag in _SUFFIX_FLAGS.items() if suffix in part)
    return frozenset(flags - {""})


def _gpus(gres: str) -> int:
    """Count the GPUs in a value such as `gpu:h100:8(S:0-1),shard:16`."""
    counts = re.sub(r"\([^)]*\)", "", gres).split(",")
    matches = [_GPU.fullmatch(count) for count in counts]
    return sum(int(match[1] or 1) for match in matches if match)


def _names(text: str) -> tuple[str, ...]:
    return () if text in {"", "(null)"} else tuple(text.split(","))
