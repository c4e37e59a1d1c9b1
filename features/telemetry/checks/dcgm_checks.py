"""Results of NVIDIA's DCGM: `dcgmi diag -j` of its versions 2 to 4, and `dcgmi health -c -j`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from forewarn.features.telemetry.checks.check_result import (
    CHECK_SEVERITIES,
    CheckResult,
    CheckSeverity,
)
from forewarn.features.telemetry.checks.json_documents import json_documents
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread

__all__ = ["is_dcgm_diagnostic", "is_dcgm_health", "parse_dcgm_diagnostic", "parse_dcgm_health"]

_DIAGNOSTIC = re.compile(r'"DCGM (?:GPU )?Diagnostic"\s*:')
_HEALTH = re.compile(r'"Overall Health"\s*:\s*\{')
# DCGM's severity of an error: its name, and ours. Without one a failed test is an error.
_ERROR_SEVERITIES: dict[int, tuple[str, CheckSeverity]] = {
    1: ("monitor", "warning"),
    2: ("isolate", "error"),
    4: ("triage", "error"),
    5: ("configuration", "notice"),
    6: ("reset", "error"),
}
_STATUSES: dict[str, CheckSeverity] = {
    **{"pass": "ok", "passed": "ok", "healthy": "ok"},
    **{"warn": "warning", "warning": "warning"},
    **{"fail": "error", "failed": "error", "failure": "error"},
}
_HEALTH_STATES = {"warning": "10", "failure": "20"}
_NOT_RUN = ("skip", "skipped", "not run", "notrun")
_GPU_GROUP = "gpu"
_Gpus = Mapping[str, GpuReading]


def is_dcgm_diagnostic(text: str) -> bool:
    """Tell whether a text has the result of `dcgmi diag -j`."""
    return bool(_DIAGNOSTIC.search(text))


def is_dcgm_health(text: str) -> bool:
    """Tell whether a text has the result of `dcgmi health -c -j`."""
    return bool(_HEALTH.search(text))


def parse_dcgm_diagnostic(text: str) -> tuple[list[CheckResult], Unread]:
    """Read the result of every test and GPU; a test that was skipped says nothing.

    Returns
    -------
    list of CheckResult
        Named `dcgm diag TEST`. A result of several GPUs together is one of the machine.
    Unread
        Diagnostics that did not run, statuses that are unknown.
    """
    unread, results = Unread(), []
    for document, time in json_documents(text, unread):
        root = document.get("DCGM Diagnostic", document.get("DCGM GPU Diagnostic", document))
        for part in (document, root):
            if isinstance(part, Mapping) and (error := part.get("runtime_error")):
                unread.add("a diagnostic of DCGM that did not run", str(error))
        gpus = _gpus(document, root)
        tests = [_results_of(test, gpus, unread) for test in _tests(root)]
        if tests and not any(tests):
            unread.add("a diagnostic of DCGM in which no test ran", _names(root))
        moment = None if time is None else time.moment
        utc = time is not None and time.utc
        results += [replace(r, time=moment, utc=utc) for test in tests for r in test]
    return results, unread


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _tests(root: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the tests of all categories, also where a version has no categories."""
    if isinstance(root, Mapping):
        for category in [root, *_list(root.get("test_categories"))]:
            yield from _list(category.get("tests"))


def _names(root: Any) -> str:
    return ", ".join(str(test.get("name", "unknown")) for test in _tests(root))


def _gpus(document: Mapping[str, Any], root: Any) -> _Gpus:
    """Return the GPUs whose serials a document has, by their numbers."""
    gpus = {}
    for part in (document, root if isinstance(root, Mapping) else {}):
        serials = part.get("GPU Device Serials")
        for number, serial in serials.items() if isinstance(serials, Mapping) else ():
            gpus[str(number)] = _gpu(str(number), serial)
        for group in _list(part.get("entity_groups")):
            if str(group.get("entity_group", "")).lower() == _GPU_GROUP:
                for entity in _list(group.get("entities")):
                    number = str(entity.get("entity_id", ""))
                    gpus[number] = _gpu(number, entity.get("serial_num"))
    return gpus


def _gpu(number: str, serial: Any = None) -> GpuReading:
    """Return a GPU by its number, which is its index for nvidia-smi, and its serial."""
    known = serial if isinstance(serial, str) and re.fullmatch(r"\w+", serial) else None
    return GpuReading(serial=known, slot=int(number) if number.isdecimal() else None)


def _results_of(test: Mapping[str, Any], gpus: _Gpus, unread: Unread) -> list[CheckResult]:
    name = f"dcgm diag {str(test.get('name', 'unknown')).strip().lower()}"
    results = []
    for result in _list(test.get("results")):
        status = str(result.get("status", "")).strip()
        severity = _STATUSES.get(status.lower())
        if severity is None:
            if status.lower() not in _NOT_RUN:
                unread.add(f"an unknown status of {name}", status)
            continue
        text, stated = _warnings(result.get("warnings"))
        entity, gpu = _entity(result, gpus)
        if severity == "error" and stated is not None:
            severity = stated
        words = [f"{name}{entity}: {status}", *text]
        results.append(CheckResult(name, severity, "; ".join(words), gpu))
    return results


def _warnings(value: Any) -> tuple[list[str], CheckSeverity | None]:
    """Return the texts of warnings with their numbers, and the gravest severity that they state."""
    items = value if isinstance(value, list) else [value] if value else []
    texts, severities = [], []
    for item in items:
        if not isinstance(item, Mapping):
            texts.append(str(item))
            continue
        word, severity = _ERROR_SEVERITIES.get(item.get("error_severity", -1), (None, None))
        number = item.get("error_id")
        notes = [f"error {number}"] if number is not None else []
        notes += [f"severity {word}"] if word else []
        note = f" ({', '.join(notes)})" if notes else ""
        texts.append(f"{item.get('warning', '')}{note}")
        severities += [severity] if severity else []
    return texts, max(severities, key=CHECK_SEVERITIES.index, default=None)


def _entity(result: Mapping[str, Any], gpus: _Gpus) -> tuple[str, GpuReading | None]:
    """Return the GPU of a result; words for another component; nothing for several together."""
    group = str(result.get("entity_group", _GPU_GROUP))
    number = result.get("entity_id", result.get("gpu_id", result.get("gpu_ids", "")))
    if group.lower() != _GPU_GROUP:
        return f" of {group} {number}", None
    number = str(number).strip()
    if not number.isdecimal():
        return "", None
    return "", gpus.get(number, _gpu(number))


def parse_dcgm_health(text: str) -> tuple[list[CheckResult], Unread]:
    """Read the health of the machine and the incidents of each GPU.

    Returns
    -------
    list of CheckResult
        Named `dcgm health SYSTEM`, and `dcgm health` for a healthy machine, which ends all others.
    Unread
        Values that are unknown.
    """
    unread, results = Unread(), []
    for document, time in json_documents(text, unread):
        body = document.get("body", document)
        checks = list(_health(body if isinstance(body, Mapping) else {}, unread))
        moment = None if time is None else time.moment
        results += [replace(r, time=moment, utc=time is not None and time.utc) for r in checks]
    return results, unread


def _health(body: Mapping[str, Any], unread: Unread) -> Iterator[CheckResult]:
    overall = str(_value(body.get("Overall Health")))
    severity = _STATUSES.get(overall.lower())
    incidents = list(_incidents(body, unread))
    if severity is None:
        unread.add("an unknown state of `dcgmi health`", overall)
    elif severity == "ok" or not incidents:  # DCGM 3.0 leaves a single incident out
        yield CheckResult("dcgm health", severity, f"dcgm health: {overall}")
    yield from incidents


def _incidents(body: Mapping[str, Any], unread: Unread) -> Iterator[CheckResult]:
    for group, section in body.items():
        for number, entity in _children(section).items():
            for system, incident in _children(_children(entity).get("Errors")).items():
                severity = _STATUSES.get(str(_value(incident)).lower())
                if severity is None:
                    unread.add("an unknown state of `dcgmi health`", str(_value(incident)))
                    continue
                # DCGM 3.0 prints the number of the state in place of the number of the GPU.
                is_state = _HEALTH_STATES.get(str(_value(entity)).lower()) == number
                is_gpu = group.lower() == _GPU_GROUP and not is_state
                name = f"dcgm health {system.lower()}"
                subject = "" if is_gpu else f" of {group}" if is_state else f" of {group} {number}"
                text = f"{name}{subject}: {_value(incident)}; {_overflow(incident)}"
                yield CheckResult(name, severity, text, _gpu(number) if is_gpu else None)


def _value(part: Any) -> Any:
    return part.get("value", "") if isinstance(part, Mapping) else ""


def _children(part: Any) -> Mapping[str, Any]:
    children = part.get("children") if isinstance(part, Mapping) else None
    return children if isinstance(children, Mapping) else {}


def _overflow(part: Any) -> str:
    """Return the text of an incident, which the tool breaks into lines."""
    lines = part.get("overflow", []) if isinstance(part, Mapping) else []
    return " ".join(map(str, lines)) if isinstance(lines, list) else str(lines)
