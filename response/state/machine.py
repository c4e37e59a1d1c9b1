"""Machines as a scheduler sees them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds

__all__ = ["MARK_PREFIX", "Machine", "ServiceState"]

MARK_PREFIX = "forewarn:"
"""What a reason begins with that forewarn has set; the number of the action follows."""


class ServiceState(StrEnum):
    """Whether a machine takes jobs.

    `DRAINING` takes no new ones and still has some; `DRAINED` has none; `DOWN` does not answer, or
    was set so; `UNKNOWN` is what a controller says of a machine after its own restart, and of one
    that has not answered it since it was given back.
    """

    IN_SERVICE = "in_service"
    DRAINING = "draining"
    DRAINED = "drained"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, as a driver has read it.

    Attributes
    ----------
    name : str
    state : ServiceState
    reason : str
        Why it is out of service, word for word; empty if it is in service.
    jobs : tuple of str
        Running on it.
    gpus : int
        0: it has none, and counts for no limit.
    avoided : bool
        New jobs go elsewhere while they can, and we have set it so.
    pool, rack, switch : str or None
    labels : mapping of str to str
        What the scheduler knows of it; `forewarn=off` is the opt-out.
    boot : str
        Changes when the machine is a new one to the controller.
    reason_by : str
        Who has set the reason, as far as the scheduler tells.
    reason_at : int or None
        When it was set, nanoseconds since 1970 UTC, as far as the scheduler tells.
    """

    name: str
    state: ServiceState
    reason: str = ""
    jobs: tuple[str, ...] = ()
    gpus: int = 0
    avoided: bool = False
    pool: str | None = None
    rack: str | None = None
    switch: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    boot: str = ""
    reason_by: str = ""
    reason_at: Nanoseconds | None = None

    @property
    def out(self) -> bool:
        """Tell whether it is out of service, by whomever."""
        return self.state is not ServiceState.IN_SERVICE

    @property
    def action(self) -> int | None:
        """Number of our action that its reason names; None if the reason is not ours.

        Examples
        --------
        >>> Machine("a", ServiceState.DRAINED, reason="forewarn:17 xid 79").action
        17
        """
        if not self.reason.startswith(MARK_PREFIX):
            return None
        number = self.reason.removeprefix(MARK_PREFIX).split(" ", 1)[0]
        return int(number) if number.isascii() and number.isdigit() else None

    @property
    def opted_out(self) -> bool:
        """Tell whether its owner does not want us to touch it."""
        return self.labels.get("forewarn") == "off"
