"""Counters of network ports in texts: node_exporter, sysfs, `ethtool -S`, `perfquery`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forewarn.features.telemetry.network.error_counters import (
    PORT_STATE,
    STATE_METRIC,
    counter_name,
    is_physical,
    port_name,
)

__all__ = ["counter_sections", "is_counter_text", "parse_counters"]

_FORM = re.compile(
    # node_exporter prints the metrics of its own process first.
    r"^[ \t]*(?:# (?:HELP|TYPE) )?(?:go_gc|node)_\w+"
    r"|^\S*/infiniband/\S+/(?:(?:hw_)?counters/\w+|state):|^==> \S*/infiniband/\S+ <==$"
    r"|^(?:==> )?\S*/net/[\w.-]+/carrier_down_count(?::| <==)"
    r"|^NIC statistics:|^# Port (?:extended )?counters: Lid|^PortSelect:\.+\d",
    re.MULTILINE,
)
_METRIC = re.compile(
    r"^[ \t]*(?P<metric>node_(?:infiniband|network|ethtool|net_ethtool)\w*)"
    r"\{(?P<labels>[^}\n]*)\} (?P<value>[\d.eE+]+)(?: \d+)?[ \t\r]*$",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
# As `grep . FILES` and as `tail -n +1 FILES` print it.
_SYSFS = re.compile(
    r"^(?:==> )?\S*/infiniband/(?P<device>[\w.-]+)/ports/(?P<port>\d+)/"
    r"(?:(?:hw_)?counters/)?(?P<name>\w+)(?: <==\n|:[ \t]*)(?P<value>\d+)(?:: [A-Z]+)?[ \t\r]*$",
    re.MULTILINE,
)
_NET = re.compile(
    r"^(?:==> )?\S*/net/(?P<device>[\w.-]+)/(?P<name>\w+)(?: <==\n|:[ \t]*)(?P<value>\d+)[ \t\r]*$",
    re.MULTILINE,
)
_SECTION = re.compile(
    r"^(?P<ethtool>NIC statistics:)"
    r"|^# Port (?:extended )?counters: Lid (?P<lid>\d+) port (?P<port>\d+)"
    r"|\APortSelect:\.+(?P<only>\d+)",
    re.MULTILINE,
)
# The line before the statistics: the command, or the name that a script printed.
_BEFORE = re.compile(
    r"(?:^|\n)(?:.*ethtool (?:-S|--statistics) (?P<asked>[\w.-]+).*"
    r"|\W*(?P<name>[A-Za-z][\w.-]*)\W*)\n\s*$"
)
_FILE_NAME = re.compile(r"ethtool[_-]+(?:-?S[_-]+)?(?P<name>[A-Za-z][A-Za-z0-9]*)")
_PAIR = re.compile(r"^\s*(?P<name>\w+):[ .]*(?P<value>\d+)\s*$", re.MULTILINE)
_MAX_TITLE = 200  # characters before the statistics in which their interface is looked for


def is_counter_text(head: str) -> bool:
    """Tell whether a text holds counters of ports."""
    return bool(_FORM.search(head))


def parse_counters(text: str, file_name: str = "") -> Iterator[tuple[str | None, str, int]]:
    r"""Yield port, counter and value; no port where `ethtool -S` does not say which it is.

    Examples
    --------
    >>> list(parse_counters("eth2\nNIC statistics:\n     link_down_events_phy: 7\n"))
    [('eth2', 'link_down_events_phy', 7)]
    """
    for match in _SYSFS.finditer(text):
        name = PORT_STATE if match["name"] == "state" else counter_name(match["name"])
        if name is not None:
            yield f"{match['device']}/{match['port']}", name, int(match["value"])
    for match in _NET.finditer(text):
        if (name := counter_name(match["name"])) and is_physical(match["device"]):
            yield match["device"], name, int(match["value"])
    yield from _metrics(text)
    for port, pair, value in counter_sections(text, file_name):
        if name := counter_name(pair):
            yield port, name, value


def counter_sections(text: str, file_name: str = "") -> Iterator[tuple[str | None, str, int]]:
    """Yield port, name and value of each line of `ethtool -S` and `perfquery`."""
    sections = [*_SECTION.finditer(text)]
    starts = [section.start() for section in sections]
    for section, end in zip(sections, [*starts[1:], len(text)], strict=False):
        if section["ethtool"]:
            port = _interface(text[: section.start()], file_name)
        elif section["lid"]:
            port = f"lid {section['lid']}/{section['port']}"
        else:  # the first line was cut off
            port = f"port {section['only']}"
        if port is None or not section["ethtool"] or is_physical(port):
            for pair in _PAIR.finditer(text, section.end(), end):
                yield port, pair["name"], int(pair["value"])


def _metrics(text: str) -> Iterator[tuple[str, str, int]]:
    for match in _METRIC.finditer(text):
        labels = dict(_LABEL.findall(match["labels"]))
        metric = (
            labels.get("type", "") if match["metric"] == "node_net_ethtool" else match["metric"]
        )
        name = PORT_STATE if metric == STATE_METRIC else counter_name(metric)
        if name is not None and is_physical(labels.get("device", "")):
            yield port_name(labels), name, int(float(match["value"]))


def _interface(before: str, file_name: str) -> str | None:
    """Return the interface of statistics, from the line before them or the file's name."""
    title = _BEFORE.search(before[-_MAX_TITLE:])
    if title is not None and (named := title["asked"] or title["name"]):
        return named
    in_name = _FILE_NAME.search(file_name)
    return in_name["name"] if in_name else None
