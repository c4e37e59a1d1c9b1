"""One sequence of events, whose decision log has to be the same with every scheduler."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.pipelines.incidents.schedulers.scheduler_site import SchedulerSite

from forewarn.response.state.action import ActionState

__all__ = ["EXPECTED", "decision_log"]

EXPECTED = [
    "1 act warning drain finish: at_risk: drain (a probability of at least 0.3)",
    "1 hold warning drain finish: at_risk: drain (a probability of at least 0.3); blocked by: "
    "action 1 already drains it",
    "2 act critical restart deadline: xid 79 (GPU fell off the bus): restart",
    "2 hold critical restart deadline: xid 79 (GPU fell off the bus): restart; blocked by: action "
    "2 already drains it; a person must restart node-00006",
    "3 hold warning drain finish: at_risk: drain (a probability of at least 0.3); blocked by: 2 of "
    "16 machines of pool are out, at most 2",
    "3 act warning drain finish: at_risk: drain (a probability of at least 0.3)",
    "3 hold warning drain finish: at_risk: drain (a probability of at least 0.3); blocked by: "
    "action 3 already drains it",
    "4 hold critical restart deadline: blocked by: xid 79 was overridden on node-00006, and does "
    "not act there for 7 days unless it becomes more severe",
    "5 hold critical reset deadline: xid 48 (double bit error of memory): reset; blocked by: "
    "node-00012 is out of service already",
]
"""The machines are 1, 6, 10, 6 again and 12."""


def decision_log(
    site: SchedulerSite, until: Callable[[Callable[[], bool], str], None]
) -> list[str]:
    """Let the events happen to a site of 16 machines; return all decisions, by incident.

    Parameters
    ----------
    site : SchedulerSite
    until : callable
        Waits until a condition holds, which it gets with a word for messages.
    """

    def respond_until(*states: ActionState) -> None:
        def reached() -> bool:
            site.respond()
            actions = [a for incident in site.ledger.incidents() for a in incident.actions]
            return [a.state for a in sorted(actions, key=lambda a: a.id)] == list(states)

        until(reached, str(states))

    drained, released = ActionState.DRAINED, ActionState.RELEASED
    site.report("node-00001")
    respond_until(drained)
    site.report("node-00006", "xid 79")
    respond_until(drained, drained)
    site.report("node-00010")  # two machines are out, and two may be
    respond_until(drained, drained)
    site.undo(1)
    respond_until(released, drained, drained)
    site.put_back("node-00006")
    respond_until(released, ActionState.OVERRIDDEN, drained)
    site.report("node-00006", "xid 79", minutes_ago=19)
    site.take_out("node-00012")
    site.report("node-00012", "xid 48")
    respond_until(released, ActionState.OVERRIDDEN, drained)
    numbers = [incident.id for incident in site.ledger.incidents()]
    logged = site.ledger.decisions_by_incident(numbers)
    return [
        f"{incident} {item.ruling} {item.severity} {item.step} {item.mode}: {_plain(item.reason)}"
        for incident, decisions in sorted(logged.items())
        for item in decisions
    ]


def _plain(reason: str) -> str:
    """Leave out times, the name of the pool, and what the scheduler itself says of a machine."""
    words = r"(out of service already) \(.*\)|(pool) \w+|(overridden on \S+) by \w+"
    return re.sub(rf"{words}| \(asked at .*\)", r"\1\2\3", reason)
