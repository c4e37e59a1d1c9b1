"""One GPU is taken out of service, and not its node, by a device taint rule (DRA).

Nodes, pods and rights are those of a real API server; it is too old for devices, which are held in
memory as the API of Kubernetes 1.36 and NVIDIA's DRA driver describe them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.pipelines.incidents.schedulers.kubernetes.conftest import (
    NODES,
    Cluster,
    CustomResources,
    rights_of,
)
from tests.pipelines.incidents.schedulers.kubernetes.kubernetes_site import KubernetesSite

from forewarn.pipelines.incidents.schedulers.driver import DriverError
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.step import DrainMode, Step

Drain = Callable[..., Action]
API = "/apis/resource.k8s.io"
RULES = f"{API}/v1beta2/devicetaintrules"
DRIVER = "gpu.nvidia.com"
NODE = "node-00001"
SERIAL = f"GPU-{NODE}-3"
LLAMA, QWEN = ("PyTorchJob", "llama"), ("PyTorchJob", "qwen")
RIGHTS = [
    *("list resourceslices.resource.k8s.io", "list resourceclaims.resource.k8s.io"),
    *(f"{verb} devicetaintrules.resource.k8s.io" for verb in ("get", "list", "create", "delete")),
]


def gpu(node: str, number: int) -> dict[str, Any]:
    """Return a device as NVIDIA's driver publishes it."""
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{node}-{number}"},
        "resource.kubernetes.io/pciBusID": {"string": f"0000:{number:02x}:00.0"},
    }
    return {"name": f"gpu-{number}", "attributes": attributes}


class Devices:
    """The devices of all nodes, and who holds them."""

    def __init__(self, cluster: Cluster) -> None:
        kinds = {"resourceslices", "resourceclaims", "devicetaintrules"}
        self.cluster = cluster
        self.resources = CustomResources("resource.k8s.io", kinds, cluster.has_right)
        for node in NODES:
            body = {"status": {"capacity": {"nvidia.com/gpu": None}}}  # no device plugin
            cluster.call("PATCH", f"/api/v1/nodes/{node}/status", body, who="kubelet")
            self.publish(node, *(gpu(node, number) for number in range(8)))

    def publish(self, node: str, *devices: Any, pool: str = "", slices: int = 1) -> None:
        name = pool or node
        spec = {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": slices},
            "devices": list(devices),
        }
        key = f"{API}/v1/resourceslices/{node}-{len(self.resources.objects)}"
        self.resources.objects[key] = {"metadata": {}, "spec": spec}

    def slice_of(self, node: str) -> Any:
        items = self.resources.objects.values()
        return next(i["spec"] for i in items if i["spec"].get("nodeName") == node)

    def run_pod(self, name: str, node: str, number: int, owner: tuple[str, str]) -> None:
        """Start a pod that holds one GPU."""
        self.cluster.run_pod(name, node, owner=owner)
        pod = self.cluster.call("GET", f"/api/v1/namespaces/team/pods/{name}")
        user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        result = {"driver": DRIVER, "pool": node, "device": f"gpu-{number}", "request": "gpu"}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
        key = f"{API}/v1/resourceclaims/{name}"
        self.resources.objects[key] = {"metadata": {}, "spec": {}, "status": status}

    def rules(self) -> dict[str, tuple[str, str, str, str]]:
        """Return driver, pool, device and effect of each rule."""
        return {
            key.removeprefix(f"{RULES}/"): (
                *(rule["spec"]["deviceSelector"].get(k) for k in ("driver", "pool", "device")),
                rule["spec"]["taint"]["effect"],
            )
            for key, rule in self.resources.objects.items()
            if key.startswith(RULES)
        }


@pytest.fixture
def devices(kubernetes: Cluster) -> Iterator[Devices]:
    devices = Devices(kubernetes)
    kubernetes.resources, kubernetes.device_pools = devices.resources, frozenset({"train"})
    yield devices
    kubernetes.resources, kubernetes.device_pools = None, frozenset()


@pytest.fixture
def device_site(devices: Devices, site: KubernetesSite) -> KubernetesSite:
    site.server.resources = devices.resources
    site.configure(pool="device_taints = true")
    return site


@pytest.fixture
def drain_gpu(drain: Drain) -> Drain:
    def action(*arguments: Any, **options: Any) -> Action:
        return replace(drain(NODE, *arguments, **options), gpu_serial=SERIAL)

    return action


# --- which mark -----------------------------------------------------------------------------------


@pytest.mark.parametrize("serial", [SERIAL, f"16532/{SERIAL}"])
def test_gpu_is_tainted_and_not_its_node(
    kubernetes: Any, devices: Devices, drain_gpu: Drain, serial: str
) -> None:
    action = replace(drain_gpu(), gpu_serial=serial)
    for _ in range(2):
        kubernetes.driver.apply(action, why="xid 79")
    assert devices.rules() == {"forewarn-17": (DRIVER, NODE, "gpu-3", "NoSchedule")}
    rule = devices.resources.objects[f"{RULES}/forewarn-17"]
    assert rule["spec"]["taint"] == {
        **{"key": "forewarn.io/out", "value": "17", "effect": "NoSchedule"}
    }
    assert rule["metadata"]["annotations"]["forewarn.io/reason"] == "forewarn:17 xid 79"
    assert kubernetes.taints(NODE) == []
    assert not kubernetes.cordoned(NODE)
    machine = kubernetes.machine(NODE)
    assert (machine.out, machine.impaired, machine.gpus) == (False, True, 8)
    assert machine.device_actions == {17: ()}
    kubernetes.driver.undo(action)
    assert devices.rules() == {}
    assert not kubernetes.machine(NODE).impaired


def partition(devices: Devices) -> None:
    part = {"parentUUID": {"string": SERIAL}, "type": {"string": "mig"}}
    devices.slice_of(NODE)["devices"].append({"name": "gpu-3-mig-1", "attributes": part})


def share_counters(devices: Devices) -> None:
    use = [{"counterSet": "gpu-3-counter-set", "counters": {}}]
    items = devices.slice_of(NODE)["devices"]
    items[3]["consumesCounters"] = use
    items.append({"name": "gpu-3-mig-1", "consumesCounters": use})


def pass_through(devices: Devices) -> None:
    form = {"name": "gpu-vfio-3", "attributes": gpu(NODE, 3)["attributes"]}
    del form["attributes"]["uuid"]
    devices.slice_of(NODE)["devices"].append(form)


def begin_update(devices: Devices) -> None:
    devices.slice_of(NODE)["pool"]["resourceSliceCount"] = 2


def start_plugin(devices: Devices) -> None:
    devices.cluster.report_ready(NODE, "True")


def repeat_names(devices: Devices) -> None:
    devices.slice_of(NODE)["pool"]["resourceSliceCount"] = 2
    devices.publish("node-00002", gpu("node-00002", 3), pool=NODE, slices=2)


def leave_out_driver(devices: Devices) -> None:
    devices.slice_of(NODE)["driver"] = ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (partition, f"2 devices of {NODE} match GPU {SERIAL}"),
        (share_counters, f"device gpu-3 of pool {NODE} ({DRIVER}) shares its GPU"),
        (pass_through, f"device gpu-3 of pool {NODE} ({DRIVER}) shares its GPU"),
        (begin_update, f"0 devices of {NODE} match GPU {SERIAL}"),
        (start_plugin, "a device plugin offers its GPUs, too (nvidia.com/gpu)"),
        (repeat_names, f"several devices of the cluster are device gpu-3 of pool {NODE}"),
        (leave_out_driver, "has no driver, pool or name"),
        (lambda devices: devices.resources.kinds.clear(), "0 devices"),
        (lambda devices: devices.resources.kinds.remove("devicetaintrules"), "no device taint"),
    ],
)
def test_node_is_drained_where_no_single_device_is_the_gpu(
    kubernetes: Any,
    devices: Devices,
    drain_gpu: Drain,
    change: Callable[[Devices], None],
    reason: str,
) -> None:
    change(devices)
    kubernetes.driver.apply(drain_gpu(), why="xid 79")
    assert devices.rules() == {}
    assert kubernetes.taints(NODE)[-1] == ("forewarn.io/out", "17", "NoSchedule")
    assert kubernetes.machine(NODE).reason.startswith("forewarn:17 whole node (")
    assert reason in kubernetes.machine(NODE).reason


def test_incident_of_node_other_pool_or_avoid_marks_the_node(
    kubernetes: Any, devices: Devices, drain_gpu: Drain
) -> None:
    kubernetes.driver.apply(replace(drain_gpu(), gpu_serial=None), why="no GPU")
    kubernetes.driver.apply(replace(drain_gpu(18), pool="other", machine=NODES[2]), why="pool")
    kubernetes.driver.apply(replace(drain_gpu(19, Step.AVOID), machine=NODES[3]), why="avoid")
    assert devices.rules() == {}
    assert kubernetes.machine(NODE).action == 17
    assert kubernetes.machine(NODES[2]).action == 18
    assert kubernetes.machine(NODES[3]).avoided


def test_externally_drained_node_is_not_changed(
    kubernetes: Any, devices: Devices, drain_gpu: Drain
) -> None:
    kubernetes.cordon(NODE, who="tom")
    with pytest.raises(DriverError, match="is drained externally by tom"):
        kubernetes.driver.apply(drain_gpu(), why="xid 79")
    assert devices.rules() == {}


# --- rules of others ------------------------------------------------------------------------------


def test_rule_of_others_is_left_alone(kubernetes: Any, devices: Devices, drain_gpu: Drain) -> None:
    theirs = {
        "metadata": {"name": "forewarn-17"},
        "spec": {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "a", "effect": "None"}},
    }
    devices.resources.objects[f"{RULES}/forewarn-17"] = theirs
    with pytest.raises(DriverError, match="forewarn-17 is a device taint rule of others"):
        kubernetes.driver.apply(drain_gpu(), why="xid 79")
    kubernetes.driver.undo(drain_gpu())
    assert devices.resources.objects[f"{RULES}/forewarn-17"] is theirs
    assert not kubernetes.machine(NODE).impaired


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [("taint", "effect", "None"), ("taint", "key", "x"), ("deviceSelector", "device", None)],
)
def test_changed_rule_is_no_mark(
    kubernetes: Any, devices: Devices, drain_gpu: Drain, part: str, name: str, value: str | None
) -> None:
    kubernetes.driver.apply(drain_gpu(), why="xid 79")
    devices.resources.objects[f"{RULES}/forewarn-17"]["spec"][part][name] = value
    assert not kubernetes.machine(NODE).impaired


# --- jobs, checks and steps -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", [DrainMode.DEADLINE, DrainMode.NOW])
def test_only_pods_that_hold_the_gpu_are_evicted(
    kubernetes: Any, devices: Devices, drain_gpu: Drain, mode: DrainMode
) -> None:
    devices.run_pod("llama-0", NODE, 3, LLAMA)
    devices.run_pod("llama-1", NODE, 4, LLAMA)
    devices.run_pod("qwen-0", NODE, 5, QWEN)
    action = drain_gpu(mode=mode)
    kubernetes.driver.apply(action, why="xid 79")
    machine = kubernetes.machine(NODE)
    assert machine.device_actions == {17: ("team/PyTorchJob/llama",)}
    assert machine.jobs == ("team/PyTorchJob/llama", "team/PyTorchJob/qwen")
    with pytest.raises(DriverError, match="holds has jobs"):
        kubernetes.driver.reserve(action)
    kubernetes.driver.evict(action, machine.device_actions[17])
    assert kubernetes.pods() == ["llama-1", "qwen-0"]
    kubernetes.driver.reserve(action)  # the check may run on the GPU
    with pytest.raises(DriverError, match="is not drained by action 17, or has jobs"):
        kubernetes.driver.carry_out(action, Step.RESET)  # would end the jobs of other GPUs


# --- the loop -------------------------------------------------------------------------------------


def details(site: KubernetesSite, number: int) -> list[str]:
    return [row.detail for row in site.ledger.action_states(number)]


def pods_with_notice(devices: Devices) -> list[str]:
    """Return the pods that carry a notice."""
    pods = devices.cluster.call("GET", "/api/v1/pods")["items"]
    return [pod["metadata"]["name"] for pod in pods if pod["metadata"].get("annotations")]


def test_gpu_is_drained_and_returned(device_site: KubernetesSite, devices: Devices) -> None:
    devices.run_pod("llama-0", NODE, 3, LLAMA)
    devices.run_pod("qwen-0", NODE, 4, QWEN)
    device_site.report(NODE, gpu_serial=SERIAL)
    assert device_site.respond()[NODE]["ruling"] == "act"
    assert device_site.states() == [ActionState.HOLDING]
    assert "read back: one GPU" in details(device_site, 1)
    assert pods_with_notice(devices) == ["llama-0"]
    device_site.cluster.end_pod("llama-0")
    device_site.respond()
    assert device_site.states() == [ActionState.DRAINED]  # qwen still runs
    device_site.undo(1)
    device_site.respond()
    device_site.respond()
    assert device_site.states() == [ActionState.RELEASED]
    assert devices.rules() == {}


def test_node_is_drained_and_the_ledger_says_why(
    device_site: KubernetesSite, devices: Devices
) -> None:
    device_site.report(NODE, gpu_serial="16532")
    device_site.respond()
    assert devices.rules() == {}
    (detail,) = [row for row in details(device_site, 1) if row.startswith("read back")]
    assert detail.startswith(
        f"read back: forewarn:1 whole node (0 devices of {NODE} match GPU 16532): "
    )


def test_second_gpu_and_the_node_itself_are_drained_as_well(
    device_site: KubernetesSite, devices: Devices
) -> None:
    device_site.report(NODE, gpu_serial=SERIAL)
    device_site.respond()
    device_site.report(NODE, minutes_ago=19, gpu_serial=f"GPU-{NODE}-5")
    device_site.respond()
    device_site.respond()
    assert {name: rule[2] for name, rule in devices.rules().items()} == {
        **{"forewarn-1": "gpu-3", "forewarn-2": "gpu-5"}
    }
    device_site.report(NODE, minutes_ago=18)  # another cause than its GPUs
    device_site.respond()
    device_site.respond()
    machine = device_site.cluster.machine(NODE)
    assert (machine.action, set(machine.device_actions)) == (3, {1, 2})
    assert device_site.states() == [ActionState.DRAINED] * 3
    for number in (1, 2, 3):  # one machine out: the limit of two leaves room for another
        device_site.report(f"node-0000{number + 4}", gpu_serial=f"GPU-node-0000{number + 4}-0")
    device_site.respond()
    assert len(device_site.ledger.open_actions()) == 4


def test_removed_rule_is_an_override_by_an_unknown_person(
    device_site: KubernetesSite, devices: Devices
) -> None:
    device_site.cluster.set_taints(NODE, ("sku", "h100", "NoSchedule"), who="tom")
    device_site.report(NODE, gpu_serial=SERIAL)
    device_site.respond()
    del devices.resources.objects[f"{RULES}/forewarn-1"]
    device_site.respond()
    assert device_site.states() == [ActionState.OVERRIDDEN]
    assert device_site.ledger.action_states(1)[-1].who == "somebody"  # not tom
    device_site.respond()
    assert devices.rules() == {}


def test_lost_answer_leaves_one_rule(device_site: KubernetesSite, devices: Devices) -> None:
    device_site.server.losses[:] = ["POST"]
    device_site.report(NODE, gpu_serial=SERIAL)
    device_site.respond()
    device_site.respond()
    assert list(devices.rules()) == ["forewarn-1"]
    assert device_site.states() == [ActionState.DRAINED]


def test_rule_goes_with_its_node(device_site: KubernetesSite, devices: Devices) -> None:
    device_site.report(NODE, gpu_serial=SERIAL)
    device_site.respond()
    device_site.cluster.http.delete(f"/api/v1/nodes/{NODE}")
    device_site.respond()
    assert details(device_site, 1)[-1] == "replaced_by_other: the machine is gone"
    assert devices.rules() == {}


def test_rule_without_action_is_reported(
    device_site: KubernetesSite, devices: Devices, drain_gpu: Drain
) -> None:
    device_site.cluster.driver.apply(drain_gpu(), why="by another ledger")
    device_site.respond()
    assert "1 machine carries a mark of forewarn without an action" in device_site.output.err
    assert list(devices.rules()) == ["forewarn-17"]


# --- configuration and rights ---------------------------------------------------------------------


def test_steps_need_the_whole_node(device_site: KubernetesSite) -> None:
    pool = 'device_taints = true\nsteps = { reset = { command = ["x"] } }'
    device_site.configure(respond='check = ["true"]', pool=pool)
    device_site.respond(code=2)
    assert "`device_taints` and `steps` exclude each other" in device_site.output.err


@pytest.fixture
def without_right(kubernetes: Any) -> Iterator[Callable[[str], None]]:
    """Return `take_away(right)`."""

    def take_away(right: str) -> None:
        rules = [
            {**rule, "resources": [name], "verbs": [verb]}
            for rule in kubernetes.device_rules
            for name in rule["resources"]
            for verb in rule["verbs"]
            if f"{verb} {name}.resource.k8s.io" != right
        ]
        kubernetes.set_rules(rules, right, role="forewarn-devices")

    yield take_away
    kubernetes.set_rules(kubernetes.device_rules, role="forewarn-devices")


def test_role_has_these_rights_only(kubernetes: Any) -> None:
    assert sorted(rights_of(kubernetes.device_rules)) == sorted(RIGHTS)


@pytest.mark.parametrize("right", RIGHTS)
@pytest.mark.usefixtures("devices")
def test_missing_right_is_named(
    kubernetes: Any, drain_gpu: Drain, without_right: Callable[[str], None], right: str
) -> None:
    without_right(right)
    with pytest.raises(DriverError, match=f"forewarn lacks the right `{right}`"):  # noqa: PT012
        kubernetes.driver.read()
        kubernetes.driver.apply(drain_gpu(), why="xid 79")
        kubernetes.driver.undo(drain_gpu())
    assert kubernetes.taints(NODE) == []
