"""Conditions and events of Kubernetes nodes, and the log of node-problem-detector.

Sources: kubernetes.io, "Node status"; github.com/kubernetes/node-problem-detector.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from forewarn.features.telemetry.checks.check_result import CheckResult, CheckSeverity
from forewarn.features.telemetry.checks.json_documents import json_documents
from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.telemetry.parsers.log_time import parse_iso_time
from forewarn.features.telemetry.parsers.script_time import split_time

__all__ = [
    "is_node_description",
    "is_node_json",
    "is_problem_log",
    "parse_node_description",
    "parse_node_json",
    "parse_problem_log",
]

_JSON = re.compile(r'"kind"\s*:\s*"(?:Node|NodeList|Event|EventList|List)"|"apiVersion"\s*:')
_CONDITION = re.compile(
    r'"lastTransitionTime"\s*:.*"reason"\s*:|"reason"\s*:.*"lastTransitionTime"\s*:', re.DOTALL
)
_DESCRIPTION = re.compile(r"^ *Conditions:\s*\n\s*Type\s+Status\s", re.MULTILINE)
_LOG = re.compile(r"Conditions:\[\{Type:|Events:\[\{Severity:|New status generated: &?\{Source:")
_STATUSES = ("True", "False", "Unknown")
# Conditions that are good if true: those of the kubelet and of the EKS node monitoring agent.
_GOOD = re.compile(r"(?:Ready|Healthy|OK|(?<!Un)(?<!un)[Aa]vailable)$")
_HARDWARE = re.compile(
    r"gpu|xid|ecc|nvlink|nvswitch|infiniband|rdma|accelerat|hardware|kerneldeadlock|"
    r"readonlyfilesystem|corrupt|shutdown|^ready$|kernelready|storageready|disk.?bad|notready",
    re.IGNORECASE,
)
_LOAD = re.compile(r"pressure$|^outofdisk$", re.IGNORECASE)  # of jobs, not of the hardware
_TEXT_TIME = r"(?:[A-Z][a-z]{2}, )?\d{2} [A-Z][a-z]{2} \d{4} [\d:]{8} [+-]\d{4}"
_ROW = re.compile(
    rf"\W*(?P<type>\w[\w./-]*) +(?P<status>True|False|Unknown) +"
    rf"(?:(?P<seen>{_TEXT_TIME}|<unknown>) +)?(?:(?P<since>{_TEXT_TIME}|<unknown>) +)?"
    r"(?P<reason>\S+)(?: +(?P<message>.*))?"
)
_NAME = re.compile(r"^Name: +(?P<name>\S+)", re.MULTILINE)
_LOGGED = re.compile(
    r"\{Type:(?P<type>[\w./-]+) Status:(?P<status>True|False|Unknown) "
    r"Transition:(?P<since>\S+ \S+)(?: [+-]\d{4})?[^{}]*? "
    r"Reason:(?P<reason>\S*) Message:(?P<message>[^}]*)\}"
)
_LOGGED_EVENT = re.compile(
    r"\{Severity:(?P<severity>\w+) Timestamp:(?P<since>\S+ \S+)(?: [+-]\d{4})?[^{}]*? "
    r"Reason:(?P<reason>\S*) Message:(?P<message>[^}]*)\}"
)
_TRANSITION_EVENTS = {"NodeReady": "ok", "NodeNotReady": "error"}


def is_node_json(text: str) -> bool:
    """Tell whether a text is `kubectl get nodes -o json` or `kubectl get events -o json`."""
    head = text.lstrip()
    is_object = head.startswith("{") and '"apiVersion"' in head
    return (is_object and bool(_JSON.search(head))) or (
        head.startswith(("{", "[")) and bool(_CONDITION.search(head))
    )


def is_node_description(text: str) -> bool:
    """Tell whether a text is `kubectl describe node`, or its conditions."""
    return bool(_DESCRIPTION.search(text)) or bool(
        re.match(r"Name: +\S+\s*\n(?:Roles|Labels): ", text)
    )


def is_problem_log(text: str) -> bool:
    """Tell whether a text is a log of node-problem-detector."""
    return bool(_LOG.search(text))


def _condition(
    host: str | None, kind: str, status: str, reason: str, message: str,
    *, since: int | None, seen: int | None,
) -> CheckResult:  # fmt: skip
    """Return the result of a condition.

    A problem has the time at which it was last confirmed, since it lasts until then. The absence
    of a problem has the time since when it is absent.
    """
    bad_if = "False" if _GOOD.search(kind) else "True"
    severity: CheckSeverity = "ok"
    if status == bad_if:
        severity = "error" if _HARDWARE.search(kind) else "warning"
        severity = "notice" if _LOAD.search(kind) else severity
    elif status == "Unknown":  # the kubelet does not answer, which is not health
        severity = "warning" if kind == "Ready" else "notice"
    moments = [time for time in (since, seen) if time is not None]
    time = since if severity == "ok" and since is not None else max(moments, default=None)
    words = " ".join(f"{reason}: {message}".split()).strip(": ")
    return CheckResult(
        f"node condition {kind}", severity, f"{kind}={status} {words}", None, time, True, host
    )


def parse_node_json(text: str) -> tuple[list[CheckResult], Unread]:
    """Read the conditions of nodes and the events about nodes.

    Returns
    -------
    list of CheckResult
        Named `node condition TYPE` and `node event REASON`.
    Unread
        Counts objects of other kinds.
    """
    unread = Unread()
    results: list[CheckResult] = []
    for document, _ in json_documents(text, unread):
        items = document.get("items")
        for item in items if isinstance(items, list) else [document]:
            if not isinstance(item, Mapping):
                continue
            kind = str(item.get("kind") or str(document.get("kind", "")).removesuffix("List"))
            if kind == "Node":
                results += _node_results(item)
            elif kind == "Event":
                results += _event_results(item)
            elif "lastTransitionTime" in item:  # `jq .status.conditions`
                results += _conditions(None, [item])
            else:
                unread.add("an object of Kubernetes other than a node or an event", kind)
    return results, unread


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(part: Mapping[str, Any], name: str) -> str:
    value = part.get(name)
    return value if isinstance(value, str) else ""


def _iso(text: str) -> int | None:
    return parse_iso_time(text.replace("Z", "+00:00"), 0, 0) if text else None


def _node_results(node: Mapping[str, Any]) -> Iterator[CheckResult]:
    host = _text(_mapping(node.get("metadata")), "name") or None
    conditions = _mapping(node.get("status")).get("conditions")
    return _conditions(host, conditions if isinstance(conditions, list) else [])


def _conditions(host: str | None, conditions: Sequence[Any]) -> Iterator[CheckResult]:
    for part in map(_mapping, conditions):
        kind, status = _text(part, "type"), _text(part, "status")
        if kind and status in _STATUSES:
            yield _condition(
                host, kind, status, _text(part, "reason"), _text(part, "message"),
                since=_iso(_text(part, "lastTransitionTime")),
                seen=_iso(_text(part, "lastHeartbeatTime")),
            )  # fmt: skip


def _event_results(event: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Yield the result of an event about a node; events about pods are not of the machine."""
    about = _mapping(event.get("involvedObject") or event.get("regarding"))
    if about.get("kind") != "Node":
        return
    reason, message = _text(event, "reason"), _text(event, "message") or _text(event, "note")
    names = ("lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp")
    stamp = next((_text(event, name) for name in names if _text(event, name)), "")
    result = _event(reason, message, _text(event, "type") == "Warning")
    if result is not None:
        host = _text(about, "name") or None
        yield replace(result, time=_iso(re.sub(r"\.\d+", "", stamp)), utc=True, host=host)


def _event(reason: str, message: str, is_warning: bool) -> CheckResult | None:
    text = f"{reason}: {' '.join(message.split())}"
    if reason in _TRANSITION_EVENTS:
        severity: CheckSeverity = "ok" if reason == "NodeReady" else "error"
        return CheckResult("node condition Ready", severity, text)
    if not is_warning:
        return None
    return CheckResult(
        f"node event {reason}", "error" if _HARDWARE.search(reason) else "warning", text
    )


def parse_node_description(text: str) -> tuple[list[CheckResult], Unread]:
    """Read the conditions of `kubectl describe node`; its events have ages and no times."""
    unread, results = Unread(), []
    name: str | None = None
    in_conditions = False
    for line in text.replace("\t", "  ").splitlines():
        if match := _NAME.match(line):
            name = match["name"]
        if not line.startswith((" ", "\t")) and line.strip().endswith(":"):
            in_conditions = line.strip() == "Conditions:"
        elif re.match(r"\w[\w ]*:", line):
            in_conditions = False
        elif in_conditions and (match := _ROW.match(line.strip())):
            since, seen = (_described_time(match[part]) for part in ("since", "seen"))
            since = seen if since is None else since
            results.append(
                _condition(name, match["type"], match["status"], match["reason"],
                           match["message"] or "", since=since, seen=seen)
            )  # fmt: skip
        elif in_conditions and line.strip() and not re.match(r"\s*(?:Type\b|-+ )", line):
            unread.add("a condition of a node in another form", line.strip())
    return results, unread


def _described_time(text: str | None) -> int | None:
    time = split_time(text)[0] if text else None
    return None if time is None else time.moment


def parse_problem_log(text: str) -> tuple[list[CheckResult], Unread]:
    """Read the conditions and events in a log of node-problem-detector."""
    results = []
    for line in text.splitlines():
        for match in _LOGGED.finditer(line):
            since = split_time(match["since"])[0]
            moment = None if since is None else since.moment
            results.append(
                _condition(None, match["type"], match["status"], match["reason"],
                           match["message"], since=moment, seen=None)
            )  # fmt: skip
        for match in _LOGGED_EVENT.finditer(line):
            result = _event(match["reason"], match["message"], match["severity"] != "info")
            time = split_time(match["since"])[0]
            if result is not None and time is not None:
                results.append(replace(result, time=time.moment, utc=True))
    return results, Unread()
