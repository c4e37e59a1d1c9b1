"""Kubernetes driver: marks nodes, evicts pods and tells their owners."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.schedulers.driver import (
    DriverError,
    DriverTimeoutError,
    Fleet,
    JobExclusions,
    StepResult,
)
from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import (
    MERGE,
    STRATEGIC,
    ApiServer,
    ConflictError,
    Json,
)
from forewarn.pipelines.incidents.schedulers.kubernetes.device_marks import (
    DeviceReading,
    DeviceTaints,
    NoSingleDeviceError,
)
from forewarn.pipelines.incidents.schedulers.kubernetes.disruption_hold import (
    HOLD_LABEL,
    hold_patch,
    release_patch,
)
from forewarn.pipelines.incidents.schedulers.kubernetes.evictions import evict_pods
from forewarn.pipelines.incidents.schedulers.kubernetes.external_marks import is_upgrading
from forewarn.pipelines.incidents.schedulers.kubernetes.job_notices import (
    NOTICE_ANNOTATION,
    anti_affinity,
    notice_event,
)
from forewarn.pipelines.incidents.schedulers.kubernetes.node_machine import NodeReading
from forewarn.pipelines.incidents.schedulers.kubernetes.node_marks import (
    OUT_TAINT,
    condition_action,
    condition_patch,
    mark_patch,
    marked_by,
    unmark_patch,
)
from forewarn.pipelines.incidents.schedulers.kubernetes.pod_jobs import (
    is_moved_by_kueue,
    job_of_pod,
    jobs_by_node,
)
from forewarn.pipelines.incidents.schedulers.kubernetes.step_resources import (
    create_step_resource,
    read_step_result,
    withdraw_step_resource,
)
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.state.action import Action
from forewarn.response.state.machine import Machine
from forewarn.response.state.step import DrainMode, Step

__all__ = ["KubernetesDriver"]

_NODES = "/api/v1/nodes"
_PODS = "/api/v1/pods"
_CLUSTER = "/api/v1/namespaces/kube-system"  # its uid identifies a cluster
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
_MACHINE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_MAX_CONFLICTS = 5  # readings of a node before a change is left for the next round


@dataclass(frozen=True, slots=True)
class KubernetesDriver:
    """Driver of a Kubernetes cluster.

    Attributes
    ----------
    server : ApiServer
    reading : NodeReading
    system_namespaces : tuple of str
        Patterns of namespaces whose pods are neither jobs nor evicted.
    device_pools : frozenset of str
        Pools of forewarn of which one GPU may be taken out of service, and not its node.
    waits : tuple of float
        Seconds before each further try to evict a pod that a disruption budget protects.
    clock : Clock
    """

    server: ApiServer
    reading: NodeReading
    system_namespaces: tuple[str, ...]
    device_pools: frozenset[str] = frozenset()
    waits: tuple[float, ...] = (1.0, 2.0, 4.0)
    clock: Clock = field(default_factory=SystemClock)
    name: str = "kubernetes"

    def read(self) -> Fleet:
        """Return all nodes with their jobs.

        Raises
        ------
        DriverError
            If the API server does not answer or its answer is unreadable.
        """
        at = Nanoseconds(self.clock.now())
        cluster = self.server.read(_CLUSTER) or {}
        nodes, clock = self.server.read_all(_NODES)
        pods, _ = self.server.read_all(_PODS, fieldSelector=f"spec.nodeName!=,{_RUNNING}")
        try:
            controller = str(cluster["metadata"]["uid"])
            jobs = jobs_by_node(pods, self.system_namespaces)
            moved = {pod["spec"].get("nodeName") for pod in pods if is_moved_by_kueue(pod)}
            devices = self._devices.read()
            machines = tuple(
                self._with_devices(machine, devices, pods)
                for node in nodes
                for name in [node["metadata"]["name"]]
                for machine in [
                    self.reading.machine(node, jobs.get(name, ()), moves_jobs=name in moved)
                ]
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise DriverError(f"the API server's answer is unreadable: {error!r}") from None
        # Whole seconds: half of one off on average.
        clock = None if clock is None else Nanoseconds(clock + SECOND // 2)
        return Fleet(at, machines, controller, clock=clock, lasting=True)

    def apply(self, action: Action, *, why: str) -> None:
        """Mark a node by a taint; take it out of service unless it is only to be avoided.

        In `device_pools` the GPU is taken out alone if it can be, by a device taint rule.

        Raises
        ------
        DriverTimeoutError
            If there was no answer, or others changed the node each time.
        DriverError
            If the server refused, or the node is drained externally.
        """
        if action.pool in self.device_pools and action.step.isolates:
            node = self._node(action.machine)
            if node is not None and marked_by(node, OUT_TAINT) is None:
                self._refuse_external(node)
                try:
                    self._devices.apply(action, node, why)
                    return
                except NoSingleDeviceError as error:
                    why = f"whole node ({error}): {why}"
        self._mark_node(action, why)

    def _mark_node(self, action: Action, why: str) -> None:
        """Mark a node; the condition is set first: without that right nothing is changed."""

        def patch(node: Json) -> Json:
            self._refuse_external(node)
            if condition_action(node) != action.id:
                self._set_condition(action, why)
            return mark_patch(node, action, why)

        self._change(action.machine, patch, missing_ok=False)

    def reserve(self, action: Action) -> None:
        """Confirm that a node, or the GPU of the action alone, is drained by this action and empty.

        The taint stays, and pods of the check tolerate it, so no other pod comes before them.

        Raises
        ------
        DriverError
            As in `apply`, and if the node is not empty, or not drained by the action.
        """
        if self._devices.holders(action) is None:
            self._require_empty_node(action)
        elif self._pods_of(action):
            raise DriverError(f"the GPU of {action.machine} that action {action.id} holds has jobs")

    def carry_out(self, action: Action, step: Step) -> None:
        """Create the resource by which NVSentinel resets the GPUs of a node or reboots it.

        Raises
        ------
        DriverTimeoutError
            If there was no answer.
        DriverError
            As in `reserve`, and if NVSentinel is not installed.
        """
        self._require_empty_node(action)
        create_step_resource(self.server, action, step)

    def step_result(self, action: Action, step: Step, *, overdue: bool) -> StepResult | None:
        """Return what the resource of a step says; an overdue one is deleted.

        Raises
        ------
        DriverError
            If the API server does not answer or refuses.
        """
        result = read_step_result(self.server, action, step)
        if result is not None or not overdue:
            return result
        withdraw_step_resource(self.server, action, step)
        return StepResult(succeeded=False, detail="not done in time")

    def evict(self, action: Action, jobs: tuple[str, ...]) -> None:
        """Evict the pods of jobs from a node that this action has drained.

        Pods that a disruption budget protects are deleted in the mode `now` only.

        Raises
        ------
        DriverTimeoutError
            If there was no answer.
        DriverError
            If the node is not drained by the action, or a budget protects a pod.
        """
        pods = [pod for pod in self._pods_of(action) if self._job(pod) in jobs]
        delete = action.mode is DrainMode.NOW
        evict_pods(self.server, pods, delete=delete, waits=self.waits)

    def undo(self, action: Action) -> None:
        """Remove the marks of an action; a cordon that others have set is kept.

        Raises
        ------
        DriverTimeoutError
            If there was no answer, or others changed the node each time.
        DriverError
            If the server refused, or the GPU Operator is replacing the driver.
        """

        def patch(node: Json) -> Json:
            body = unmark_patch(node, action)
            if body and action.step is not Step.AVOID and is_upgrading(node):
                raise DriverError(f"{action.machine} is in a driver upgrade")
            return body

        self._devices.remove(action)
        node = self._change(action.machine, patch, missing_ok=True)
        if node is not None and condition_action(node) == action.id:
            self._set_condition(action, None)

    def hold(self, machines: Collection[str]) -> None:
        """Ask Karpenter and the cluster autoscaler not to remove these nodes, and no others.

        Karpenter's node repair and that of a cloud do not obey.

        Raises
        ------
        DriverTimeoutError
            If there was no answer, or others changed a node each time.
        DriverError
            If the server refused.
        """
        nodes, _ = self.server.read_all(_NODES, labelSelector=HOLD_LABEL)
        held = {node["metadata"]["name"] for node in nodes}
        for name in sorted(held.difference(machines)):
            self._change(name, release_patch, missing_ok=True)
        for name in sorted(set(machines) - held):
            self._change(name, hold_patch, missing_ok=True)

    def notify(self, jobs: tuple[str, ...], message: str) -> None:
        """Write an event about one pod of each job.

        Raises
        ------
        DriverTimeoutError
            If there was no answer.
        DriverError
            If the server refused.
        """
        pods, _ = self.server.read_all(_PODS, fieldSelector=f"spec.nodeName!=,{_RUNNING}")
        pod_by_job = {self._job(pod): pod for pod in pods}
        for job in jobs:
            if job in pod_by_job:
                pod = pod_by_job[job]
                path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/events"
                self.server.create(path, notice_event(pod, message, self._now()))

    def publish(self, notices: Mapping[str, str]) -> None:
        """Set the annotation of the pods of each job with a notice; remove it from other pods.

        Raises
        ------
        DriverTimeoutError
            If there was no answer.
        DriverError
            If the server refused.
        """
        pods, _ = self.server.read_all(_PODS, fieldSelector=f"spec.nodeName!=,{_RUNNING}")
        for pod in pods:
            metadata = pod["metadata"]
            shown = (metadata.get("annotations") or {}).get(NOTICE_ANNOTATION)
            notice = notices.get(self._job(pod) or "")
            if shown != notice:
                path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
                body = {"metadata": {"annotations": {NOTICE_ANNOTATION: notice}}}
                self.server.patch(path, body, form=MERGE)

    def exclusions(self, job: str) -> JobExclusions | None:
        """Return that a job excludes no machine: what it excludes is not read."""
        owner = job.partition("/")[0] if "/" in job else ""
        return JobExclusions(waits=True, machines=frozenset(), owner=owner)

    def exclude(self, job: str, machine: str) -> None:
        """Refuse: the controllers of jobs do not let their node affinity change.

        Raises
        ------
        DriverError
            Always, with the line to add to the pod template.
        """
        raise DriverError(f"add to the pod template of {job}: {anti_affinity(machine)}")

    def include(self, job: str, machine: str) -> None:
        """Do nothing: nothing was excluded."""

    # --- one GPU ----------------------------------------------------------------------------------

    @property
    def _devices(self) -> DeviceTaints:
        return DeviceTaints(self.server, self.device_pools)

    def _with_devices(
        self, machine: Machine, devices: DeviceReading, pods: Sequence[Json]
    ) -> Machine:
        """Add the GPUs of a node that actions have taken out; DRA drivers count GPUs, too."""
        actions = {
            number: tuple(
                sorted(
                    {
                        job
                        for p in pods
                        if p["metadata"]["uid"] in uids
                        for job in [self._job(p)]
                        if job
                    }
                )
            )
            for number, uids in devices.pods_by_action.get(machine.name, {}).items()
        }
        gpus = machine.gpus or devices.gpus.get(machine.name, 0)
        return replace(machine, gpus=gpus, device_actions=actions)

    def _pods_of(self, action: Action) -> Sequence[Json]:
        """Return the pods of jobs on the GPU or the node that an action has drained."""
        pods, uids = self._pods(action.machine), self._devices.holders(action)
        if uids is not None:
            return [pod for pod in pods if pod["metadata"]["uid"] in uids]
        node = self._node(action.machine)
        if node is None or marked_by(node, OUT_TAINT) != action.id:
            raise DriverError(f"{action.machine} is not drained by action {action.id}")
        return pods

    # --- one node ---------------------------------------------------------------------------------

    def _change(
        self, machine: str, patch: Callable[[Json], Json], *, missing_ok: bool
    ) -> Json | None:
        """Read and patch a node, again if it changed in between; return it as read last."""
        for _ in range(_MAX_CONFLICTS):
            node = self._node(machine)
            if node is None:
                if missing_ok:
                    return None
                raise DriverError(f"Kubernetes has no node {machine!r}")
            body = patch(node)
            try:
                if body:
                    self.server.patch(f"{_NODES}/{machine}", body, form=MERGE)
            except ConflictError:
                continue
            return node
        raise DriverTimeoutError(f"others changed {machine} {_MAX_CONFLICTS} times meanwhile")

    def _require_empty_node(self, action: Action) -> None:
        node = self._node(action.machine)
        if node is None or marked_by(node, OUT_TAINT) != action.id or self._pods(action.machine):
            raise DriverError(f"{action.machine} is not drained by action {action.id}, or has jobs")

    def _refuse_external(self, node: Json) -> None:
        external = self.reading.external(node)
        if marked_by(node, OUT_TAINT) is None and external is not None:
            who = f" by {external.who}" if external.who else ""
            name = node["metadata"]["name"]
            raise DriverError(f"{name} is drained externally{who}: {external.why}")

    def _node(self, name: str) -> Json | None:
        if not _MACHINE.fullmatch(name):
            raise DriverError(f"{name[:100]!r} is not a valid node name")
        return self.server.read(f"{_NODES}/{name}")

    def _set_condition(self, action: Action, why: str | None) -> None:
        body = condition_patch(action, why, self._now())
        self.server.patch(f"{_NODES}/{action.machine}/status", body, form=STRATEGIC)

    def _pods(self, machine: str) -> Sequence[Json]:
        """Return the pods of jobs on a node."""
        pods, _ = self.server.read_all(_PODS, fieldSelector=f"spec.nodeName={machine},{_RUNNING}")
        return [pod for pod in pods if self._job(pod) is not None]

    def _job(self, pod: Json) -> str | None:
        return job_of_pod(pod, self.system_namespaces)

    def _now(self) -> str:
        return format_iso(self.clock.now() // SECOND * SECOND)
