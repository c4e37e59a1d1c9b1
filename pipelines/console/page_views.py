"""The pages: which answers of the API each shows, and how."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from forewarn.features.duration import format_duration
from forewarn.features.time_units import DAY, HOUR, SECOND, Nanoseconds
from forewarn.pipelines.at_risk.first_checks import first_checks
from forewarn.pipelines.at_risk.flagging_criteria import ACTION_WORDS
from forewarn.pipelines.console.console_site import ConsoleSite
from forewarn.pipelines.console.incident_story import incident_story
from forewarn.pipelines.console.job_verdict import JobVerdict, parse_verdict
from forewarn.pipelines.console.page_words import action_mark, coded, path_of, state_mark, when
from forewarn.pipelines.console.person_tasks import PersonTask, approval_tasks, machine_tasks
from forewarn.pipelines.console.telemetry_chart import telemetry_charts
from forewarn.pipelines.incidents.api.api_context import ApiContext
from forewarn.pipelines.incidents.api.api_models import ActionDetail
from forewarn.pipelines.incidents.api.fleet_machines import MachineAnswer
from forewarn.pipelines.incidents.api.fleet_routes import (
    fleet_answer,
    gpu_answer,
    job_answer,
    list_answer,
)
from forewarn.pipelines.incidents.api.gpu_details import GpuAnswer
from forewarn.pipelines.incidents.api.job_details import recent_verdicts
from forewarn.pipelines.incidents.api.latest_score import Score
from forewarn.pipelines.incidents.api.listed_gpus import ListAnswer
from forewarn.pipelines.incidents.ledger.incident_summaries import IncidentHead
from forewarn.pipelines.rendering.templates import finite_number, parse_utc, render_page
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.serving.request_bodies import RefusedError
from forewarn.response.state.action import ENDED_STATES, Action
from forewarn.response.state.decision import Ruling
from forewarn.response.state.incident import Incident, IncidentState

__all__ = ["PAGE_SIZE", "Page", "PageViews"]

PAGE_SIZE: Final = 100
"""Rows of a page of a list."""

_INCIDENTS, _MACHINES = 50, 1000  # rows of a page
_NIGHT: Final = Nanoseconds(12 * HOUR)
_RETURNED: Final = Nanoseconds(14 * DAY)
_MAX_WAITING, _MAX_BLOCKED, _MAX_DONE, _MAX_FLAGGED = 20, 10, 30, 5
_CALM, _MAX_JOBS = ("none", "ended", "unknown"), 20  # kinds of verdicts that need no person
_GPUS_OF_MACHINE: Final = 8  # where the list does not tell
_LATE_LIST: Final = 26 * HOUR


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its template, its values, and the address of the API behind it."""

    template: str
    title: str
    api: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PageViews:
    """Makes the pages of a site; every method reads files and the ledger.

    Attributes
    ----------
    site : ConsoleSite
    """

    site: ConsoleSite

    @property
    def context(self) -> ApiContext:
        """The API's state."""
        return self.site.context

    def render(self, page: Page, **more: Any) -> str:
        """Render a page."""
        now = self.context.now()
        control = self.site.time_control
        shared = {
            "title": page.title,
            "api": page.api,
            "now": now,
            "when": partial(when, now=now),
            "mark": state_mark,
            "mark_action": action_mark,
            "coded": coded,
            "path_of": path_of,
            "actions": ACTION_WORDS,
            "navigation": True,
            "simulation": None if control is None else control.status(),
        }
        return render_page(f"console/{page.template}.html", shared | dict(page.values) | more)

    # --- pages ------------------------------------------------------------------------------------

    def today(self) -> Page:
        """Return what is on fire, what waits for a person, and what was done at night."""
        context = self.context
        heads, now = context.ledger.open_heads(), context.now()
        recent = context.ledger.recent_actions(Nanoseconds(now - _NIGHT))
        out = [action for action in context.ledger.open_actions() if action.step.isolates]
        approvals = approval_tasks(heads)
        waiting = sorted([*approvals, *self._machine_tasks(out).values()])
        handled = {action.machine for action in out}
        blocked = [
            head
            for head in heads
            if head.ruling is Ruling.HOLD and not head.acknowledged and head.machine not in handled
        ]
        off = context.switch.off()
        newest = self._newest_list(flagged=True)
        values = {
            "switch": off,
            "waiting": waiting[:_MAX_WAITING],
            "n_waiting": len(waiting),
            "n_approvals": len(approvals),
            "rulings": Counter(str(head.ruling or "") for head in heads),
            "n_open": len(heads),
            "blocked": blocked[-_MAX_BLOCKED:][::-1],
            "n_blocked": len(blocked),
            "done": self._with_authors(recent[-_MAX_DONE:][::-1]),
            "reasons": self._reasons(recent[-_MAX_DONE:]),
            "n_done": len(recent),
            "n_out": len(handled),
            "listed": newest,
            "flagged": newest.gpus[:_MAX_FLAGGED] if newest else (),
            "troubles": list(self._troubles(newest)),
            "jobs": self._stopped_jobs(),
            "illustration": self.site.illustration(),
        }
        return Page("today", "Today", "/v1/incidents?state=open", values)

    def out_of_service(self) -> Page:
        """Return all machines that forewarn has taken out of service, and what each waits for."""
        ledger = self.context.ledger
        actions = [action for action in ledger.open_actions() if action.step.isolates]
        tasks = self._machine_tasks(actions)
        rows = [(action, tasks.get(action.id)) for action in actions]
        recent = ledger.recent_actions(Nanoseconds(self.context.now() - _RETURNED))
        returned = [a for a in recent if a.step.isolates and a.state in ENDED_STATES]
        values = {"rows": rows, "returned": self._with_authors(returned[-_MAX_DONE:][::-1])}
        return Page("out", "Out of service", "/v1/actions", values)

    def at_risk(self, date: str, *, after: int, flagged: bool) -> Page:
        """Return a page of a daily list."""
        try:
            answer = list_answer(self.context, date, after=after, limit=PAGE_SIZE, flagged=flagged)
        except RefusedError:
            if date != "latest":
                raise
            return Page("at_risk", "At-risk list", "/v1/lists/latest", {"listed": None})
        lists = self.context.lists
        rows = [(gpu, first_checks(gpu.reasons) if gpu.flagged else ()) for gpu in answer.gpus]
        values = {
            "listed": answer,
            "rows": rows,
            "out": self._out_of_service(),
            "only_flagged": flagged,
            "after": after,
            "dates": lists.dates()[:14] if lists else (),
            "cost": self._cost_text(),
        }
        return Page("at_risk", f"At-risk list of {answer.date}", f"/v1/lists/{answer.date}", values)

    def gpu(self, serial: str) -> Page:
        """Return the page of a GPU."""
        answer = gpu_answer(self.context, serial, incidents=False)
        reasons = answer.listed.reasons if answer.listed else ()
        values = {
            "gpu": answer,
            "charts": telemetry_charts(answer),
            "out": self._out_of_service(answer.machine).get(answer.machine or ""),
            "checks": first_checks(reasons),
            "incidents": self._incidents_of_gpu(answer),
        }
        return Page("gpu", f"GPU {serial}", f"/v1/gpus/{quote(serial, safe='')}", values)

    def machine(self, name: str) -> Page:
        """Return the page of a machine."""
        context = self.context
        daily = context.lists.newest() if context.lists else None
        rows = daily.on_machine(name) if daily else []
        unscored = [row for row in daily.unscored if row.get("machine_id") == name] if daily else []
        incidents = context.ledger.heads_on(name, _INCIDENTS)
        if not (rows or unscored or incidents):
            raise RefusedError(404, f"machine {name[:100]}: on no list, and without an incident")
        values = {
            "machine": name,
            "rack": daily.racks.get(name, "") if daily else "",
            "gpus": sorted(rows, key=lambda row: str(row.get("slot") or "")),
            "unscored": unscored,
            "incidents": incidents,
            "out": context.ledger.open_actions(name),
        }
        api = f"/v1/incidents?machine={quote(name, safe='')}"
        return Page("machine", f"Machine {name}", api, values)

    def job(self, job: str) -> Page:
        """Return the page of a job."""
        answer = job_answer(self.context, job)
        verdict = parse_verdict(answer.verdicts[0]) if answer.verdicts else None
        values = {
            "job": answer,
            "verdict": verdict,
            "cost": self._interruption_text(verdict, answer.gpus),
        }
        return Page("job", f"Job {job}", f"/v1/jobs/{quote(job, safe='')}", values)

    def incidents(self, state: IncidentState | None, before: int | None) -> Page:
        """Return a page of incidents, newest first."""
        rows = self.context.ledger.incidents(state=state, before=before, limit=_INCIDENTS)
        values = {
            "incidents": rows,
            "state": state.value if state else "",
            "next": rows[-1].id if len(rows) == _INCIDENTS else None,
            "newest": before is None,
        }
        query = f"?state={state.value}" if state else ""
        return Page("incidents", "Incidents", f"/v1/incidents{query}", values)

    def incident(self, number: int) -> Page:
        """Return the page of an incident without its forms."""
        incident = self.read_incident(number)
        ledger, decision = self.context.ledger, incident.decision
        approval = ledger.approvals([number]).get(number)
        approved = approval is not None and decision is not None
        changes = ledger.incident_changes(number)
        ends = [row for row in changes if row.what == incident.state.value]
        values = {
            "incident": incident,
            "story": incident_story(incident, changes, ledger),
            "last": decision,
            "ended": ends[-1] if ends else None,
            "approved": approved and approval.decision.at == decision.at,  # type: ignore[union-attr]
            "open_actions": [action for action in incident.actions if action.open],
            "asked": sorted(self._machine_tasks(incident.actions).values()),
            "proposed": self._is_proposal(incident),
            "jobs": sorted({f.job for f in incident.findings if f.job})[:20],
            "serials": sorted({f.gpu_serial for f in incident.findings if f.gpu_serial})[:20],
        }
        return Page("incident", f"Incident {number}", f"/v1/incidents/{number}", values)

    def read_incident(self, number: int) -> Incident:
        """Return an incident.

        Raises
        ------
        RefusedError
            404 if there is none of this number.
        """
        incident = self.context.ledger.incident(number)
        if incident is None:
            raise RefusedError(404, f"incident {number}: does not exist")
        return incident

    def score(self, score: Score) -> Page:
        """Return how often predictions were right, and what acting saved and cost."""
        values = {"score": score, "hours": _hour_rows(score)}
        return Page("score", "Score", "/v1/score", values)

    def fleet(self, after: str) -> Page:
        """Return the racks with their machines."""
        try:
            answer = fleet_answer(self.context, after=after, limit=_MACHINES)
        except RefusedError:
            return Page("fleet", "Fleet", "/v1/fleet", {"fleet": None})
        racks: dict[str, list[tuple[MachineAnswer, str]]] = defaultdict(list)
        for machine in answer.machines:
            racks[machine.rack].append((machine, machine_state(machine)))
        counts = Counter(state for rows in racks.values() for _, state in rows)
        values = {"fleet": answer, "racks": racks, "counts": counts, "after": after}
        daily = self.context.lists.newest() if self.context.lists else None
        unscored = [row for row in daily.unscored if row.get("gpu_serial")] if daily else []
        values |= {"unscored": unscored[:PAGE_SIZE], "n_unscored": len(unscored)}
        return Page("fleet", "Fleet", "/v1/fleet", values)

    def models(self) -> Page:
        """Return champion, challengers, and calibration over time."""
        lists = self.context.lists
        days = list(lists.latest(PAGE_SIZE // 4)) if lists else []
        rows = [
            {
                "date": daily.date,
                "model": str(daily.summary.get("model_version") or ""),
                "calibration": daily.summary.get("promise") or {},
            }
            for daily in days
        ]
        values = {"versions": self.site.models(), "days": rows}
        return Page("models", "Models", "/v1/lists/latest", values)

    # --- parts ------------------------------------------------------------------------------------

    def _newest_list(self, *, flagged: bool) -> ListAnswer | None:
        try:
            return list_answer(self.context, "latest", after=0, limit=PAGE_SIZE, flagged=flagged)
        except RefusedError:
            return None

    def _incidents_of_gpu(self, gpu: GpuAnswer) -> list[IncidentHead]:
        """Return the incidents of a GPU, and those of its whole machine."""
        heads = self.context.ledger.heads_on(gpu.machine, _INCIDENTS) if gpu.machine else []
        return [head for head in heads if head.gpu_serial in (None, gpu.gpu_serial)]

    def _machine_tasks(self, actions: Sequence[Action]) -> dict[int, PersonTask]:
        """Return what a person has to do about drained machines, by action."""
        context, loop_every = self.context, self.site.loop_every
        return machine_tasks(context.ledger, actions, context.now(), loop_every)

    def _stopped_jobs(self) -> list[tuple[str, JobVerdict]]:
        """Return the jobs that a verdict of the last night says something is wrong with."""
        since = format_iso(self.context.now() - _NIGHT)
        lines = recent_verdicts(self.context.diagnoses, since)
        jobs = [(str(line["job"]), parse_verdict(line)) for line in lines]
        return [(job, verdict) for job, verdict in jobs if verdict.kind not in _CALM][:_MAX_JOBS]

    def _with_authors(self, actions: Iterable[Action]) -> list[ActionDetail]:
        ledger = self.context.ledger
        return [
            ActionDetail.from_action(action, ledger.action_states(action.id)) for action in actions
        ]

    def _out_of_service(self, machine: str | None = None) -> dict[str, Action]:
        """Return the action that keeps each machine, or one of them, out of service."""
        actions = self.context.ledger.open_actions(machine)
        return {action.machine: action for action in actions if action.step.isolates}

    def _reasons(self, actions: Sequence[Action]) -> dict[int, str]:
        """Return why each action was taken: the reason of the decision that led to it."""
        decisions = self.context.ledger.decisions_by_incident([a.incident for a in actions])
        return {
            action.id: earlier[-1].reason
            for action in actions
            if (earlier := [d for d in decisions.get(action.incident, ()) if d.at <= action.at])
        }

    def _troubles(self, listed: ListAnswer | None) -> Iterable[str]:
        """Yield what is wrong with forewarn itself: it must not look quiet because it is down."""
        now, ledger = self.context.now(), self.context.ledger
        last = ledger.last_heartbeat("loop")
        if last is None:
            yield "The loop has not run yet: `forewarn respond --watch` decides and acts."
        elif now - last > self.site.loop_every:
            text = format_duration(round((now - last) / SECOND))
            yield f"The loop has not run for {text}: nothing is decided, nothing is returned."
        if listed is None:
            yield "There is no list: `forewarn score` writes one each day."
            return
        made = parse_utc(listed.at)
        if made is not None and now - int(made.as_unit("ns").value) > _LATE_LIST:
            text = format_duration(round((now - int(made.as_unit("ns").value)) / SECOND))
            yield f"The newest list is {text} old: what fails today is on no list."

    def _cost_text(self) -> str:
        """Return what draining a machine of the list would cost and save, at the site's costs."""
        costs = self.site.costs
        return (
            f"Acting: a drain of {_GPUS_OF_MACHINE} GPUs for a day takes {24 * _GPUS_OF_MACHINE} "
            f"GPU-hours out of service. Before a failure it saves {costs.hours_saved:.1f} h for "
            "each GPU of the job (`respond.costs`)."
        )

    def _is_proposal(self, incident: Incident) -> bool:
        decision = incident.decision
        return (
            incident.state is IncidentState.OPEN
            and decision is not None
            and decision.ruling is Ruling.PROPOSE
            and self.context.now() < decision.valid_until
        )

    def _interruption_text(self, verdict: JobVerdict | None, gpus: int | None) -> str:
        """Return what an unplanned stop of a job costs, at the site's costs."""
        costs, stalled = self.site.costs, ""
        hours = (costs.detection + costs.scheduling + costs.start + costs.checkpoint / 2) / HOUR
        if verdict is not None:
            begin, end = parse_utc(verdict.since), parse_utc(verdict.detected_at)
            if begin is not None and end is not None and end > begin:
                span = format_duration(round((end - begin).total_seconds()))
                stalled = f"Work stopped {span} before the verdict. "
        whole = f", {hours * gpus:,.0f} GPU-hours for its {gpus:,} GPUs" if gpus else ""
        return (
            f"{stalled}An unplanned stop costs about {hours:.1f} h per GPU{whole}, at the costs "
            "in `respond.costs`."
        )


def machine_state(machine: MachineAnswer) -> str:
    """Return the state that a machine is shown with: the one that most needs a person."""
    if machine.waits:
        return "waits"
    if machine.action:
        return "out" if machine.step != "avoid" else "incident"
    if machine.failed:
        return "failed"
    if machine.flagged:
        return "flagged"
    if machine.incidents:
        return "incident"
    return "blind" if machine.without_data else "ok"


def _hour_rows(score: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the hours of a score with their intervals, for one common scale."""
    names = {
        "gpu_hours_saved": "saved by planned stops",
        "gpu_hours_isolated": "lost while machines were out of service",
        "gpu_hours_net": "net",
    }
    rows = []
    for name, words in names.items():
        estimate = score.get(name) or {}
        low, high = estimate.get("interval") or (None, None)
        rows.append(
            {
                "words": words,
                "value": finite_number(estimate.get("value")),
                "low": finite_number(low),
                "high": finite_number(high),
                "why": estimate.get("why"),
            }
        )
    return rows
