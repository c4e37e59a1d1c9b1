"""Report of `forewarn policy replay`: decisions of a policy on past data, as objects and text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.replay.fleet_history_reader import REPLAY_POOL, read_fleet_history
from forewarn.pipelines.incidents.replay.policy_file import policy_of_site
from forewarn.pipelines.rendering.templates import plural
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.replay.fleet_history import FleetHistory
from forewarn.response.replay.policy_replay import ReplayRules, replay
from forewarn.response.replay.replay_decision import ReplayAction, ReplayDecision
from forewarn.response.replay.replay_metrics import (
    BlockedDrain,
    DrainMetrics,
    every_xid_baseline,
    find_blocked_drains,
    isolating_actions,
    measure_drains,
    random_baseline,
)
from forewarn.response.replay.replay_outcome import OutcomeJudge, ReplayOutcome
from forewarn.response.state.incident import Outcome
from forewarn.response.state.pool import Limits, Pool, PoolMode
from forewarn.response.state.step import Step

if TYPE_CHECKING:
    from forewarn.pipelines.config.settings import Settings

__all__ = ["ReplayDrain", "ReplayReport", "replay_records", "replay_sentences", "replay_text"]


_MIN_JUDGED_DRAINS = 20  # with 20, the 95 % interval of a share of one half is about 0.3 to 0.7


@dataclass(frozen=True, slots=True)
class ReplayDrain:
    """A drain of the replay with its outcome."""

    taken: ReplayAction
    judged: ReplayOutcome


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Result of replaying a policy.

    Attributes
    ----------
    past : FleetHistory
    rules : ReplayRules
    rows : list of ReplayDecision
        All decisions, by time.
    drains : list of ReplayDrain
    blocked : list of BlockedDrain
        Drains that were blocked to the end.
    metrics : DrainMetrics
    xids, random : DrainMetrics or None
        Baselines: a drain at each Xid, and as many random drains.
    horizon : int
        Nanoseconds after a finding within which a failure counts, except for predictions.
    """

    past: FleetHistory
    rules: ReplayRules
    rows: list[ReplayDecision]
    drains: list[ReplayDrain]
    blocked: list[BlockedDrain]
    metrics: DrainMetrics
    xids: DrainMetrics
    random: DrainMetrics | None
    horizon: Nanoseconds

    @property
    def drained(self) -> str:
        """Describe what would have been drained."""
        metrics = self.metrics
        if not metrics.drains:
            return "would have drained no machine"
        what = plural(metrics.machines or 0, "machine")
        if metrics.drains != metrics.machines:
            what += f" {metrics.drains:g} times"
        unknown = f" and {metrics.unknown:g} of unknown outcome" if metrics.unknown else ""
        most = f"at most {metrics.at_once} at once"
        return f"would have drained {what}: {metrics.rightly:g} right{unknown}, {most}"

    @property
    def avoided(self) -> int:
        """Number of machines that new jobs would have avoided for a time."""
        steps = [row.taken.action for row in self.rows if row.taken]
        return len({action.machine for action in steps if action.step is Step.AVOID})

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """Return the reasons that blocked drains to the end with counts, most frequent first."""
        return Counter(_plain_reason(blocked.row) for blocked in self.blocked).most_common()

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield one object per decision, then the summary."""
        judged = {drain.taken.action.id: drain.judged for drain in self.drains}
        for row in self.rows:
            level = self.rules.policy.level(row.cause)
            yield _to_json(row, judged) | {"level": None if level is None else str(level)}
        yield self.summary()

    def summary(self) -> dict[str, Any]:
        """Return the metrics with a summary sentence."""
        past = self.past
        return {
            "summary": self.drained,
            "policy_version": self.rules.policy.version,
            "start": format_iso(past.start),
            "end": format_iso(past.end),
            "machines": len(past.machines),
            "failures": len(past.failures) if past.failures_known else None,
            "decisions": len(self.rows),
            "avoided": self.avoided,
            "held_back": len(self.blocked),
            "drains": asdict(self.metrics),
            "drain_every_xid": asdict(self.xids),
            "at_random_as_often": asdict(self.random) if self.random else None,
        }


def _to_json(row: ReplayDecision, judged: dict[int, ReplayOutcome]) -> dict[str, Any]:
    decision, taken = row.decision, row.taken
    line: dict[str, Any] = {
        "at": format_iso(decision.at),
        "machine": row.machine,
        "gpu_serial": row.gpu_serial,
        "finding": row.cause,
        "severity": str(decision.severity),
        "step": str(decision.step),
        "blocked_by": row.blocked_by,
        "mode": str(decision.mode) if decision.mode else None,
        "ruling": str(decision.ruling),
        "reason": decision.reason,
    }
    if taken is not None:
        line["until"] = format_iso(taken.until)
    if taken is not None and taken.action.id in judged:
        outcome = judged[taken.action.id]
        line["outcome"] = str(outcome.outcome)
        line["failed_at"] = format_iso(outcome.failed_at) if outcome.failed_at else None
    return line


def _plain_reason(row: ReplayDecision) -> str:
    """Return the reason that blocked a step, without the names and numbers of the case."""
    reason = (row.blocked_by or "").replace(row.machine, "the machine")
    reason = re.sub(r"^\d+ of (\d+ machines of .*) (is|are) out", r"too many of \1 are out", reason)
    return re.sub(r"^\d+ machines? (?=of|drained)", "too many machines ", reason)


def replay_records(
    records: Path,
    settings: Settings,
    *,
    overlays: Sequence[Path],
    at_risk: Path | None = None,
    failures: Path | None = None,
) -> ReplayReport:
    """Replay a policy on past data.

    Parameters
    ----------
    records : Path
    settings : Settings
        Its Xids are applied to the policy; its horizon counts for findings other than predictions.
    overlays : sequence of Path
        Policy files, applied to the default policy.
    at_risk, failures : Path, optional
        Daily lists; a table of failures that replaces the one next to the records.

    Raises
    ------
    InputError
        If a source is unreadable.
    """
    policy = policy_of_site(overlays, settings)
    interval = settings.records.interval
    names = settings.records.names
    past = read_fleet_history(
        records, policy, interval=interval, at_risk=at_risk, failures=failures, names=names
    )
    rules = ReplayRules(policy, {REPLAY_POOL: _pool(settings)}, settings=settings.respond.core())
    return _report(past, rules, Nanoseconds(settings.horizon))


def _pool(settings: Settings) -> Pool:
    """Return the single pool of a replay: records do not contain pools."""
    respond = settings.respond
    names = list(respond.pools)
    if len(names) > 1:
        note(f"records do not contain pools: all machines have the limits of {names[0]!r}")
    limits = respond.pool(names[0]).limits if names else Limits()
    return Pool(REPLAY_POOL, PoolMode.ACT, limits=limits)


def _report(past: FleetHistory, rules: ReplayRules, horizon: Nanoseconds) -> ReplayReport:
    rows = replay(past, rules)
    judge = OutcomeJudge(past, horizon)
    taken = isolating_actions(rows)
    return ReplayReport(
        past=past,
        rules=rules,
        rows=rows,
        drains=[ReplayDrain(action, judge.outcome(action.findings)) for action in taken],
        blocked=find_blocked_drains(rows, judge, past),
        metrics=measure_drains(taken, judge, past),
        xids=measure_drains(every_xid_baseline(past, rules.out_for), judge, past),
        random=random_baseline(len(taken), past, horizon, rules.out_for),
        horizon=horizon,
    )


def replay_text(report: ReplayReport) -> str:
    """Return the report as text."""
    blocked = [f"Blocked to the end, {number}: {why}." for why, number in report.reasons]
    return "\n".join([f"This policy {report.drained}.", *replay_sentences(report), *blocked])


def replay_sentences(report: ReplayReport) -> list[str]:
    """Return the sentences after the headline."""
    metrics, past = report.metrics, report.past
    days = round((past.end - past.start) / DAY)
    machines, findings = (
        plural(len(past.machines), "machine"),
        plural(len(past.findings), "finding"),
    )
    lines = [f"Replayed {plural(days, 'day')} of {machines}: {findings}, {_failures(past)}."]
    judged = metrics.rightly + metrics.wrongly
    if judged:
        low, high = _interval(int(metrics.rightly), int(judged))
        lines.append(
            f"Of {plural(judged, 'drain')} that can be judged, {metrics.rightly:g} "
            f"{'was' if metrics.rightly == 1 else 'were'} right: "
            f"{metrics.rightly / judged:.0%} ({low:.0%} to {high:.0%} with 95 % confidence). "
            f"{_ahead(metrics)}"
        )
        if judged < _MIN_JUDGED_DRAINS:
            lines.append(
                "These are too few to judge the policy: replay a longer period, or observe longer."
            )
    unknown = Counter(d.judged.why for d in report.drains if d.judged.outcome is Outcome.UNKNOWN)
    lines += [
        f"Outcome of {plural(number, 'drain')} unknown: {why}."
        for why, number in unknown.most_common()
    ]
    return [*lines, _baselines(report)]


def _interval(hits: int, number: int) -> tuple[float, float]:
    from scipy.stats import binomtest

    interval = binomtest(hits, number).proportion_ci(method="wilson")
    return interval.low, interval.high


def _ahead(metrics: DrainMetrics) -> str:
    """Describe how many of the right drains came before the failure."""
    ahead, rightly = metrics.ahead or 0, metrics.rightly
    if not rightly:
        return ""
    if ahead == rightly:
        return "All of these came before the GPU failed."
    return f"{ahead:g} of these came before the GPU failed, {rightly - ahead:g} after it."


def _failures(past: FleetHistory) -> str:
    if not past.failures_known:
        return "failures unknown"
    return plural(len(past.failures), "failure")


def _baselines(report: ReplayReport) -> str:
    xids, random = report.xids, report.random
    text = f"Draining at every Xid without limits: {plural(xids.drains, 'drain')}, "
    text += f"{xids.rightly:g} right, at most {xids.at_once} at once."
    if random is not None and random.drains:
        text += f" As many random drains: {random.rightly:.2g} right on average."
    return text
