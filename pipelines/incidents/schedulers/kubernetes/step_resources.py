"""Resets and reboots by the resources of NVSentinel's janitor, which has to be installed.

Source: the custom resource definitions and controllers of github.com/NVIDIA/NVSentinel.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from forewarn.features.time_units import SECOND
from forewarn.pipelines.incidents.schedulers.driver import DriverError, StepResult
from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import (
    ApiServer,
    ConflictError,
    Json,
)
from forewarn.response.state.action import Action
from forewarn.response.state.step import Step

__all__ = ["create_step_resource", "read_step_result", "withdraw_step_resource"]

_GROUP: Final = "janitor.dgxc.nvidia.com"
_VERSION: Final = "v1alpha1"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of resource; the reason of its condition tells success from failure."""

    name: str
    plural: str
    condition: str
    success: str
    spec: tuple[tuple[str, Any], ...] = ()


_KINDS: Final = {
    Step.RESET: _Kind("GPUReset", "gpuresets", "Complete", "GPUResetSucceeded"),
    Step.RESTART: _Kind(
        *("RebootNode", "rebootnodes", "NodeReady", "Succeeded"), spec=(("force", False),)
    ),
}


def create_step_resource(server: ApiServer, action: Action, step: Step) -> None:
    """Create the resource by which a step is carried out; no error if it exists.

    Raises
    ------
    DriverTimeoutError
        If there was no answer: it may have been created.
    DriverError
        If the server refused, or does not know the resource.
    """
    kind = _kind(step)
    spec = {"nodeName": action.machine, **dict(kind.spec)}
    body = {
        "apiVersion": f"{_GROUP}/{_VERSION}",
        "kind": kind.name,
        "metadata": {"name": _name(action)},
        "spec": spec,
    }
    with suppress(ConflictError):
        if not server.create(f"/apis/{_GROUP}/{_VERSION}/{kind.plural}", body):
            raise DriverError(f"the cluster has no resource {kind.plural}.{_GROUP}")


def read_step_result(server: ApiServer, action: Action, step: Step) -> StepResult | None:
    """Return how a step ended; None if it has not.

    Raises
    ------
    DriverError
        If the server does not answer or refuses.
    """
    kind = _kind(step)
    status = (server.read(_path(kind, action)) or {}).get("status") or {}
    if not status.get("completionTime"):
        return None
    conditions: list[Json] = status.get("conditions") or []
    for condition in conditions:
        if (condition["type"], condition["status"]) == (kind.condition, "True"):
            return StepResult(condition["reason"] == kind.success, _text(condition))
    failed = [item for item in conditions if item["status"] == "False"]
    return StepResult(succeeded=False, detail=_text(failed[-1]) if failed else "no reason given")


def withdraw_step_resource(server: ApiServer, action: Action, step: Step) -> None:
    """Delete the resource of a step that has not ended, so that it is not carried out later.

    Raises
    ------
    DriverError
        If the server does not answer or refuses.
    """
    server.delete(_path(_kind(step), action), {})


def _kind(step: Step) -> _Kind:
    if step not in _KINDS:
        raise DriverError(f"Kubernetes cannot {step} a node, expected a command")
    return _KINDS[step]


def _name(action: Action) -> str:
    """Return a name that is the same at each try, and differs from those of another ledger."""
    return f"forewarn-{action.id}-{action.at // SECOND}"


def _path(kind: _Kind, action: Action) -> str:
    return f"/apis/{_GROUP}/{_VERSION}/{kind.plural}/{_name(action)}"


def _text(condition: Json) -> str:
    message = " ".join(str(condition.get("message", "")).split())
    return f"{condition.get('reason', '')} ({message})" if message else str(condition["reason"])
