"""Events of the counters of network ports, from one file of a host to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from forewarn.features.telemetry.host_files.file_rows import HostFileRows, HostFileText
from forewarn.features.telemetry.network.counter_text import parse_counters
from forewarn.features.telemetry.network.error_counters import (
    ACTIVE,
    PORT_STATE,
    counter_row,
    saturated_at,
    state_row,
)

__all__ = ["read_port_counters"]

_NO_PORT = (
    "`ethtool -S` without its interface (write `echo eth0` before it, or name the file "
    "ethtool_eth0)"
)


@dataclass(frozen=True, slots=True)
class _Sample:
    time: int
    value: int
    file: HostFileText


def read_port_counters(
    dropped: HostFileRows, host: str | None, files: Sequence[HostFileText]
) -> None:
    """Add an event for each increase of an error counter from one file of a host to the next.

    Parameters
    ----------
    dropped : HostFileRows
        Updated in place. Counts as unread what cannot show an error: files without a time in their
        name, saturated counters, ports that were never active.
    host : str or None
    files : sequence of HostFileText
    """
    samples: dict[tuple[str, str], list[_Sample]] = {}
    for file in files:
        if file.time is None:
            dropped.unread.add("counters of ports without a time in the file name", file.name)
            continue
        counters = [*parse_counters(file.text, file.name)]
        if not counters:
            dropped.unread.add("a file without an error counter of a port", file.name)
        for port, name, value in counters:
            if port is None:
                dropped.unread.add(_NO_PORT, file.name)
                break
            samples.setdefault((port, name), []).append(_Sample(file.time, value, file))
    for (port, name), series in samples.items():
        series.sort(key=lambda sample: sample.time)
        _note_silent(dropped, port, name, series)
        for before, after in pairwise(series):
            if name == PORT_STATE:
                row = state_row(host, port, after.time, before.value, after.value)
            else:
                row = counter_row(host, port, name, after.time, after.value - before.value) or {}
            if row:
                dropped.add_event(row | {"known_at": after.time}, after.file)


def _note_silent(dropped: HostFileRows, port: str, name: str, series: Sequence[_Sample]) -> None:
    """Note a counter that cannot rise, since its silence is no health."""
    values = [sample.value for sample in series]
    if name == PORT_STATE:
        if ACTIVE not in values:
            dropped.unread.add("a port that was never active", f"{port} ({series[-1].file.name})")
    elif len(values) > 1 and saturated_at(name, values[0]) and len({*values}) == 1:
        dropped.unread.add(
            "a counter at its largest value, which cannot rise (reset it: `perfquery -R`)",
            f"{name} of {port}",
        )
