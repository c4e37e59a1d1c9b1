"""Marks of forewarn on one GPU of a node: a `DeviceTaintRule` of dynamic resource allocation.

A rule whose selector is empty matches every device of the cluster, so each rule names driver, pool
and device, and is written only if exactly one device of the cluster has these names.

Source: the API `resource.k8s.io` of Kubernetes 1.36 (rules `v1beta2`, slices and claims `v1`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from forewarn.pipelines.incidents.schedulers.driver import DriverError
from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import (
    ApiServer,
    ConflictError,
    Json,
)
from forewarn.pipelines.incidents.schedulers.kubernetes.node_marks import OUT_TAINT, reason_text
from forewarn.response.state.action import Action

__all__ = ["DeviceReading", "DeviceTaints", "NoSingleDeviceError"]

_RULES: Final = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
_SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
_CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"
_ACTION: Final = "forewarn.io/action"  # label
_MACHINE: Final = "forewarn.io/machine"  # annotation
_REASON: Final = "forewarn.io/reason"  # annotation
_PCI_ADDRESS: Final = "resource.kubernetes.io/pciBusID"
_GPU_DRIVER = re.compile(r"gpu\.[a-z0-9.-]+")
_GPU_RESOURCE = re.compile(r"(nvidia|amd)\.com/gpu")
_EFFECT: Final = "NoSchedule"  # the eviction of `NoExecute` obeys neither budgets nor limits


class NoSingleDeviceError(Exception):
    """The GPU of an action cannot be tainted alone; the message says why."""


@dataclass(frozen=True, slots=True)
class _Device:
    """Names that identify a device in the cluster."""

    driver: str
    pool: str
    name: str


@dataclass(frozen=True, slots=True)
class _Mark:
    """A rule of forewarn, as read."""

    action: int
    machine: str
    device: _Device
    uid: str


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """Devices of a cluster at one time.

    Attributes
    ----------
    gpus : mapping of str to int
        Number of GPUs that a DRA driver publishes, by node.
    pods_by_action : mapping of str to mapping of int to frozenset of str
        Uids of the pods that hold the GPU of an action, by node and action.
    """

    gpus: Mapping[str, int]
    pods_by_action: Mapping[str, Mapping[int, frozenset[str]]]


@dataclass(frozen=True, slots=True)
class DeviceTaints:
    """Device taint rules of a cluster.

    Attributes
    ----------
    server : ApiServer
    pools : frozenset of str
        Pools of forewarn whose actions may take one GPU and not its node.
    """

    server: ApiServer
    pools: frozenset[str]

    def read(self) -> DeviceReading:
        """Return the devices; a cluster without the API has none.

        Raises
        ------
        DriverError
            If the API server does not answer or refuses.
        """
        if not self.pools:
            return DeviceReading({}, {})
        devices = self._read_all(_SLICES)
        rules, claims = self._read_all(_RULES), self._read_all(_CLAIMS)
        marks: dict[str, dict[int, frozenset[str]]] = {}
        for mark in filter(None, map(_read_mark, rules)):
            marks.setdefault(mark.machine, {})[mark.action] = _holders(claims, mark.device)
        return DeviceReading(_gpu_counts(devices), marks)

    def holders(self, action: Action) -> frozenset[str] | None:
        """Return the uids of the pods that hold the GPU of an action; None without a rule.

        Raises
        ------
        DriverError
            As in `read`.
        """
        mark = self._mark(action)
        return None if mark is None else _holders(self._read_all(_CLAIMS), mark.device)

    def apply(self, action: Action, node: Json, why: str) -> None:
        """Taint the GPU of an action, and no other device.

        Raises
        ------
        NoSingleDeviceError
            If it cannot be identified, or others can use it without its device.
        DriverTimeoutError
            If there was no answer: the rule may have been created.
        DriverError
            If the server refused, or another rule has the name.
        """
        if self._mark(action) is not None:
            return
        device = _single_device(self._read_all(_SLICES), node, action.gpu_serial)
        try:
            if not self.server.create(_RULES, _rule(action, device, why)):
                raise NoSingleDeviceError("the cluster has no device taint rules")
        except ConflictError:
            raise DriverError(f"{_name(action)} is a device taint rule of others") from None

    def remove(self, action: Action) -> None:
        """Delete the rule of an action, and no other.

        Raises
        ------
        DriverTimeoutError
            If there was no answer.
        DriverError
            If the server refused.
        """
        mark = self._mark(action)
        if mark is not None:
            self.server.delete(_path(action), {"preconditions": {"uid": mark.uid}})

    def _mark(self, action: Action) -> _Mark | None:
        if action.pool not in self.pools or not action.step.isolates:
            return None
        rule = self.server.read(_path(action))
        mark = None if rule is None else _read_mark(rule)
        return mark if mark and (mark.action, mark.machine) == (action.id, action.machine) else None

    def _read_all(self, path: str) -> list[Json]:
        return self.server.read_all(path, missing_ok=True)[0]


def _single_device(slices: Sequence[Json], node: Json, serial: str | None) -> _Device:
    """Return the device that is the GPU with a serial, if no other device shares the GPU.

    A partition names its GPU in an attribute, so it matches as well.
    """
    machine = node["metadata"]["name"]
    capacity: Mapping[str, str] = node.get("status", {}).get("capacity") or {}
    plugins = sorted(n for n in capacity if _GPU_RESOURCE.fullmatch(n) and capacity[n] != "0")
    if serial is None:
        raise NoSingleDeviceError("the incident names no serial of a GPU")
    if plugins:
        raise NoSingleDeviceError(f"a device plugin offers its GPUs, too ({plugins[0]})")
    names = {serial, *serial.split("/")}
    current = _current(slices)
    local = [
        item
        for part in current
        if part["spec"].get("nodeName") == machine
        for item in _devices(part)
    ]
    matches = [(device, body) for device, body in local if names & _texts(body)]
    if len(matches) != 1:
        raise NoSingleDeviceError(f"{len(matches)} devices of {machine} match GPU {serial}")
    ((device, body),) = matches
    if not all((device.driver, device.pool, device.name)):
        raise NoSingleDeviceError(f"the device of GPU {serial} has no driver, pool or name")
    if [other for part in current for other, _ in _devices(part)].count(device) != 1:
        raise NoSingleDeviceError(f"several devices of the cluster are {_words(device)}")
    if any(_shares(body, other) for named, other in local if named != device):
        raise NoSingleDeviceError(f"{_words(device)} shares its GPU with other devices")
    return device


def _current(slices: Iterable[Json]) -> list[Json]:
    """Return the slices of the newest generation of each pool; pools in an update have none."""
    specs = [(item, item["spec"]["pool"], item["spec"]["driver"]) for item in slices]
    newest: dict[tuple[str, str], int] = {}
    for _, pool, driver in specs:
        key = (driver, pool["name"])
        newest[key] = max(newest.get(key, 0), pool["generation"])
    valid = [
        (item, pool, (driver, pool["name"]))
        for item, pool, driver in specs
        if pool["generation"] == newest[driver, pool["name"]]
    ]
    counts = Counter(key for _, _, key in valid)
    return [item for item, pool, key in valid if counts[key] == pool["resourceSliceCount"]]


def _devices(part: Json) -> list[tuple[_Device, Json]]:
    """Return the devices of a slice."""
    spec = part["spec"]
    return [
        (_Device(spec["driver"], spec["pool"]["name"], item["name"]), item)
        for item in spec.get("devices") or []
    ]


def _texts(device: Json) -> set[str]:
    return {value["string"] for value in _attributes(device).values() if "string" in value}


def _attributes(device: Json) -> Mapping[str, Mapping[str, str]]:
    return device.get("attributes") or {}


def _shares(device: Json, other: Json) -> bool:
    """Tell whether two devices are parts or forms of one GPU."""
    addresses = [_attributes(item).get(_PCI_ADDRESS, {}).get("string") for item in (device, other)]
    counters = [
        {use["counterSet"] for use in item.get("consumesCounters") or []}
        for item in (device, other)
    ]
    same_address = addresses[0] is not None and addresses[0] == addresses[1]
    return same_address or bool(counters[0] & counters[1])


def _gpu_counts(slices: Iterable[Json]) -> Mapping[str, int]:
    """Return the number of whole GPUs of each node."""
    return Counter(
        part["spec"]["nodeName"]
        for part in _current(slices)
        if part["spec"].get("nodeName") and _GPU_DRIVER.fullmatch(part["spec"]["driver"])
        for _, item in _devices(part)
        if _attributes(item).get("type", {}).get("string", "gpu") == "gpu"
    )


def _holders(claims: Iterable[Json], device: _Device) -> frozenset[str]:
    """Return the uids of the pods for which a device is reserved."""
    return frozenset(
        str(user["uid"])
        for claim in claims
        for status in [claim.get("status") or {}]
        if any(
            _Device(item["driver"], item["pool"], item["device"]) == device
            for item in status.get("allocation", {}).get("devices", {}).get("results") or []
            if not item.get("adminAccess")
        )
        for user in status.get("reservedFor") or []
        if user["resource"] == "pods"
    )


def _rule(action: Action, device: _Device, why: str) -> Json:
    selector = {"driver": device.driver, "pool": device.pool, "device": device.name}
    return {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {
            "name": _name(action),
            "labels": {_ACTION: str(action.id)},
            "annotations": {_MACHINE: action.machine, _REASON: reason_text(action, why)},
        },
        "spec": {
            "deviceSelector": selector,
            "taint": {"key": OUT_TAINT, "value": str(action.id), "effect": _EFFECT},
        },
    }


def _read_mark(rule: Json) -> _Mark | None:
    """Return the mark of a rule; None if it is not one of forewarn, or no longer one."""
    metadata, spec = rule["metadata"], rule["spec"]
    selector = spec.get("deviceSelector") or {}
    device = _Device(*(str(selector.get(name) or "") for name in ("driver", "pool", "device")))
    number = str((metadata.get("labels") or {}).get(_ACTION, ""))
    machine = str((metadata.get("annotations") or {}).get(_MACHINE, ""))
    taint = {name: spec["taint"].get(name) for name in ("key", "value", "effect")}
    if not (number.isascii() and number.isdigit() and machine):
        return None
    if taint != {"key": OUT_TAINT, "value": number, "effect": _EFFECT}:
        return None
    if not all((device.driver, device.pool, device.name)):
        return None
    return _Mark(int(number), machine, device, str(metadata.get("uid", "")))


def _words(device: _Device) -> str:
    return f"device {device.name} of pool {device.pool} ({device.driver})"


def _name(action: Action) -> str:
    return f"forewarn-{action.id}"


def _path(action: Action) -> str:
    return f"{_RULES}/{_name(action)}"
