"""`forewarn policy replay`: what a policy would have done, as objects, words and figures."""

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


_MIN_JUDGED_DRAINS = 20  # of them, a share of one half is known to a fifth either way


@dataclass(frozen=True, slots=True)
class ReplayDrain:
    """A machine that would have been taken out, and what then happened."""

    taken: ReplayAction
    judged: ReplayOutcome


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a policy would have done.

    Attributes
    ----------
    past : Past
    rules : Rules
    rows : list of Replayed
        All decisions, by time.
    drains : list of Drain
    waiting : list of Waiting
        What was held back to the end.
    figures : Figures
    xids, random : Figures or None
        Of draining at each Xid, and of as many drains at random.
    horizon : int
        Nanoseconds after a finding that is no prediction in which a failure counts.
    """

    past: FleetHistory
    rules: ReplayRules
    rows: list[ReplayDecision]
    drains: list[ReplayDrain]
    waiting: list[BlockedDrain]
    figures: DrainMetrics
    xids: DrainMetrics
    random: DrainMetrics | None
    horizon: Nanoseconds

    @property
    def drained(self) -> str:
        """Say in words what would have been drained."""
        figures = self.figures
        if not figures.drains:
            return "would have drained no machine"
        what = plural(figures.machines or 0, "machine")
        if figures.drains != figures.machines:
            what += f" {figures.drains:g} times"
        unknown = f" and {figures.unknown:g} of unknown outcome" if figures.unknown else ""
        most = f"{figures.at_once} at once at most"
        return f"would have drained {what}, {figures.rightly:g} rightly{unknown}, {most}"

    @property
    def avoided(self) -> int:
        """Number of machines that new jobs would have avoided for a while."""
        steps = [row.taken.action for row in self.rows if row.taken]
        return len({action.machine for action in steps if action.step is Step.AVOID})

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """Return why drains were held back to the end, and how many, the most frequent first."""
        return Counter(_plain(waiting.row) for waiting in self.waiting).most_common()

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield one object a decision, and last the summary."""
        judged = {drain.taken.action.id: drain.judged for drain in self.drains}
        for row in self.rows:
            yield _line(row, judged)
        yield self.summary()

    def summary(self) -> dict[str, Any]:
        """Return the figures with a sentence."""
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
            "held_back": len(self.waiting),
            "drains": asdict(self.figures),
            "drain_every_xid": asdict(self.xids),
            "at_random_as_often": asdict(self.random) if self.random else None,
        }


def _line(row: ReplayDecision, judged: dict[int, ReplayOutcome]) -> dict[str, Any]:
    decision, taken = row.decision, row.taken
    line: dict[str, Any] = {
        "at": format_iso(decision.at),
        "machine": row.machine,
        "gpu_serial": row.gpu_serial,
        "finding": row.cause,
        "severity": str(decision.severity),
        "step": str(decision.step),
        "held_back": row.blocked_by,
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


def _plain(row: ReplayDecision) -> str:
    """Return why a step was held back, without the names and numbers of this one."""
    words = (row.blocked_by or "").replace(row.machine, "the machine")
    words = re.sub(r"^\d+ of (\d+ machines of .*) (is|are) out", r"too many of \1 are out", words)
    return re.sub(r"^\d+ machines? (?=of|drained)", "too many machines ", words)


def replay_records(
    records: Path,
    settings: Settings,
    *,
    overlays: Sequence[Path],
    at_risk: Path | None = None,
    failures: Path | None = None,
) -> ReplayReport:
    """Try a policy on the past.

    Parameters
    ----------
    records : Path
    settings : Settings
        Its Xids are laid over the policy; its horizon counts for findings that predict nothing.
    overlays : sequence of Path
        Files of the policy, laid over the default.
    at_risk, failures : Path, optional
        Daily lists; a table of failures in the place of the one beside the records.

    Raises
    ------
    InputError
        If something cannot be read.
    """
    policy = policy_of_site(overlays, settings)
    interval = settings.records.interval
    past = read_fleet_history(
        records, policy, interval=interval, at_risk=at_risk, failures=failures
    )
    rules = ReplayRules(policy, {REPLAY_POOL: _pool(settings)}, settings=settings.respond.core())
    return _report(past, rules, Nanoseconds(settings.horizon))


def _pool(settings: Settings) -> Pool:
    """Return the one pool of a replay: records do not say who belongs to which."""
    respond = settings.respond
    names = list(respond.pools)
    if len(names) > 1:
        note(f"records do not say which pool a machine is in: all have the limits of {names[0]!r}")
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
        waiting=find_blocked_drains(rows, judge, past),
        figures=measure_drains(taken, judge, past),
        xids=measure_drains(every_xid_baseline(past, rules.out_for), judge, past),
        random=random_baseline(len(taken), past, horizon, rules.out_for),
        horizon=horizon,
    )


def replay_text(report: ReplayReport) -> str:
    """Return the report in some lines of text."""
    held = [f"Held back to the end, {number}: {why}." for why, number in report.reasons]
    return "\n".join([f"This policy {report.drained}.", *replay_sentences(report), *held])


def replay_sentences(report: ReplayReport) -> list[str]:
    """Return what stands behind the first sentence."""
    figures, past = report.figures, report.past
    days = round((past.end - past.start) / DAY)
    machines, findings = (
        plural(len(past.machines), "machine"),
        plural(len(past.findings), "finding"),
    )
    lines = [f"It looked at {plural(days, 'day')} of {machines}: {findings}, {_failures(past)}."]
    judged = figures.rightly + figures.wrongly
    if judged:
        low, high = _interval(int(figures.rightly), int(judged))
        lines.append(
            f"Of {plural(judged, 'drain')} that can be judged, {figures.rightly:g} "
            f"{'was' if figures.rightly == 1 else 'were'} right: "
            f"{figures.rightly / judged:.0%} ({low:.0%} to {high:.0%} with 95 % confidence). "
            f"{_ahead(figures)}"
        )
        if judged < _MIN_JUDGED_DRAINS:
            lines.append("That is too few to tell: try more of the past, or observe for longer.")
    unknown = Counter(d.judged.why for d in report.drains if d.judged.outcome is Outcome.UNKNOWN)
    lines += [
        f"Of {plural(number, 'drain')} nobody can say: {why}."
        for why, number in unknown.most_common()
    ]
    return [*lines, _beside(report)]


def _interval(hits: int, number: int) -> tuple[float, float]:
    from scipy.stats import binomtest

    interval = binomtest(hits, number).proportion_ci(method="wilson")
    return interval.low, interval.high


def _ahead(figures: DrainMetrics) -> str:
    """Say how many of the right drains came before the failure, and not after it."""
    ahead, rightly = figures.ahead or 0, figures.rightly
    if not rightly:
        return ""
    if ahead == rightly:
        return "All of these came before the GPU failed."
    return f"{ahead:g} of these came before the GPU failed, {rightly - ahead:g} after it."


def _failures(past: FleetHistory) -> str:
    if not past.failures_known:
        return "and nobody says what failed"
    return plural(len(past.failures), "failure")


def _beside(report: ReplayReport) -> str:
    xids, random = report.xids, report.random
    text = f"Draining at every Xid, without limits: {plural(xids.drains, 'drain')}, "
    text += f"{xids.rightly:g} rightly, {xids.at_once} at once at most."
    if random is not None and random.drains:
        text += f" As many drains at random: {random.rightly:.2g} rightly on average."
    return text
