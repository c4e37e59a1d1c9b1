"""Usage of the limits on a fleet with the real faults of 400 servers.

    python tests/response/fleet_faults.py ../shared/data/infinitehbd/fault_trace.json

Servers are drained externally for the length of each fault. Once a day one machine is to be drained
for a prediction, for 24 hours, and each GPU fault that is certain damage (double bit errors, Xid
errors, lost GPUs) asks for a drain when it starts. `before` counts every machine that is out for
`share` (0.02) and `rack` (1 of 18), as the limits did; `now` uses the present limits.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.response.decision.limits import find_blocker
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.machine import MARK_PREFIX, Machine, ServiceState
from forewarn.response.state.pool import Limits, Pool
from forewarn.response.state.step import DrainMode, Step

SERVERS, RACK_SIZE = 400, 18
LIMITS = Limits()
CERTAIN = {
    "GPU DBE(Double Bit ECC) > Threshold": "xid 48",
    "GPU xid Error": "xid 79",
    "GPU Lost": "lost",
    "GPU device not found": "lost",
}


@dataclass(frozen=True)
class Fault:
    """Fault of one server; times are nanoseconds since the start of the trace."""

    server: int
    start: int
    end: int
    description: str


def read_faults(path: Path) -> list[Fault]:
    """Return the faults of a trace, oldest first; an open fault lasts until the last end."""
    events = sorted(json.loads(path.read_text()), key=lambda event: event["event_time"])
    servers = {node: i for i, node in enumerate(sorted({event["node_id"] for event in events}))}
    last = int(events[-1]["event_time"] * DAY)
    faults, begun = [], dict[tuple[int, str], list[int]]()
    for event in events:
        description = (event["fault_type"] or {}).get("Desc") or ""
        key = (servers[event["node_id"]], description)
        if event["event_type"] == "fault_start":
            begun.setdefault(key, []).append(int(event["event_time"] * DAY))
        elif begun.get(key):
            start = begun[key].pop(0)
            faults.append(Fault(key[0], start, int(event["event_time"] * DAY), description))
    faults += [
        Fault(server, start, last, description)
        for (server, description), starts in begun.items()
        for start in starts
    ]
    return sorted(faults, key=lambda fault: (fault.start, fault.server))


@dataclass
class Fleet:
    """Servers spread randomly over racks, and the drains by forewarn."""

    faults: list[Fault]
    seed: int = 0
    actions: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        places = list(range(SERVERS))
        random.Random(self.seed).shuffle(places)
        self.racks = [f"r{place // RACK_SIZE}" for place in places]

    def out(self, now: int) -> set[int]:
        return {fault.server for fault in self.faults if fault.start < now <= fault.end}

    def machines(self, now: int) -> list[Machine]:
        out = self.out(now)
        ours = {a.machine: a for a in self.actions if a.open}
        machines = []
        for number, rack in enumerate(self.racks):
            state, reason = ServiceState.IN_SERVICE, ""
            if (action := ours.get(f"n{number}")) is not None:
                state, reason = ServiceState.DRAINED, f"{MARK_PREFIX}{action.id} {action.cause}"
            elif number in out:
                state, reason = ServiceState.DOWN, "a fault"
            name = f"n{number}"
            machines.append(Machine(name, state, reason, gpus=8, pool="train", rack=rack))
        return machines

    def end_actions(self, now: int) -> None:
        self.actions = [
            replace(a, state=ActionState.RELEASED) if a.open and a.valid_until <= now else a
            for a in self.actions
        ]

    def ask(self, server: int, cause: str, now: int, until: int) -> tuple[bool, bool]:
        """Request a drain; return whether the earlier limits block it, and whether the present ones
        do.
        """
        self.end_actions(now)
        rack, machines = self.racks[server], self.machines(now)
        out = [m for m in machines if m.out and m.name != f"n{server}"]
        before = len(out) >= LIMITS.share * SERVERS or any(m.rack == rack for m in out)
        action = Action(
            len(self.actions) + 1,
            1,
            f"n{server}",
            "train",
            rack,
            None,
            cause,
            Step.DRAIN,
            DrainMode.FINISH,
            Nanoseconds(now),
            Nanoseconds(until),
            Nanoseconds(now),
            gpus=8,
        )
        held = find_blocker(
            action,
            pools={"train": Pool("train", limits=LIMITS)},
            fleet=[m for m in machines if m.name != f"n{server}"],
            recent=self.actions,
            now=Nanoseconds(now),
            certain=cause != "at_risk",
        )
        if held is None:
            self.actions.append(replace(action, state=ActionState.DRAINED))
        return before, held is not None


def requests(faults: list[Fault], seed: int) -> Iterator[tuple[int, int, str, int]]:
    """Yield (when, server, cause, until), oldest first: daily predictions, and certain damage."""
    rng = random.Random(seed)
    end = max(fault.end for fault in faults)
    healthy = {day: rng.randrange(SERVERS) for day in range(4, end // DAY)}
    requests = [(day * DAY, server, "at_risk", (day + 1) * DAY) for day, server in healthy.items()]
    requests += [
        (fault.start, fault.server, CERTAIN[fault.description], fault.end)
        for fault in faults
        if fault.description in CERTAIN
    ]
    yield from sorted(requests)


def used_up(faults: list[Fault], seed: int = 0) -> dict[str, float]:
    """Return the usage of the limits: shares of hours, and of requested drains."""
    fleet = Fleet(faults, seed)
    hours = range(4 * DAY, max(fault.end for fault in faults), HOUR)
    outs = [fleet.out(hour) for hour in hours]
    bound, n_racks = LIMITS.share * SERVERS, len(set(fleet.racks))
    full_racks = sum(len({fleet.racks[server] for server in out}) for out in outs)
    counts = Counter[str]()
    for now, server, cause, until in requests(faults, seed):
        name = "prediction" if cause == "at_risk" else "certain"
        if name == "prediction" and server in fleet.out(now):
            continue
        before, today = fleet.ask(server, cause, now, until)
        counts[name] += 1
        counts[f"{name} before"] += before
        counts[f"{name} now"] += today
    return {
        "machines out, mean share": sum(map(len, outs)) / len(outs) / SERVERS,
        "hours with `share` used up, before": sum(len(out) >= bound for out in outs) / len(outs),
        "racks with `rack` used up, before": full_racks / len(outs) / n_racks,
        "requested drains for a prediction": counts["prediction"],
        "blocked by share or rack, before": counts["prediction before"] / counts["prediction"],
        "blocked now": counts["prediction now"] / counts["prediction"],
        "requested drains for certain damage": counts["certain"],
        "of these blocked, before": counts["certain before"] / counts["certain"],
        "of these blocked, now": counts["certain now"] / counts["certain"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for name, value in used_up(read_faults(args.trace), args.seed).items():
        print(f"{name:<40} {value:.3f}" if value < 1 else f"{name:<40} {value:.0f}")


if __name__ == "__main__":
    main()
