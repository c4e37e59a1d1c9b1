"""Words, shapes and times of the pages: every state has both a word and a shape."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote

from markupsafe import Markup, escape

from forewarn.evaluation.prediction.metrics.calibration_monitor import CalibrationState
from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.api.api_models import ActionAnswer
from forewarn.pipelines.rendering.templates import moment, parse_utc
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Ruling
from forewarn.response.state.incident import IncidentState, Outcome
from forewarn.response.state.step import Step

__all__ = [
    "State",
    "action_mark",
    "action_state",
    "ago",
    "coded",
    "path_of",
    "state_mark",
    "state_of",
    "when",
]


class State(NamedTuple):
    """How a state is shown; `tone` selects its colour."""

    shape: str
    word: str
    tone: str


_STATES: Final[dict[str, State]] = {
    **{
        f"ruling {ruling.value}": state
        for ruling, state in {
            Ruling.PROPOSE: State("◆", "waits for approval", "soon"),
            Ruling.ACT: State("▶", "acting", "busy"),
            Ruling.HOLD: State("‖", "blocked", "soon"),
            Ruling.OBSERVE: State("○", "only observed", "plain"),
        }.items()
    },
    **{
        f"incident {state.value}": shown
        for state, shown in {
            IncidentState.OPEN: State("●", "open", "busy"),
            IncidentState.OVERRIDDEN: State("↩", "overridden by a person", "plain"),
            IncidentState.CLOSED: State("✓", "closed", "calm"),
        }.items()
    },
    **{
        f"action {state.value}": shown
        for state, shown in {
            ActionState.INTENDED: State("▷", "about to start", "busy"),
            ActionState.SENT: State("▷", "sent to the scheduler", "busy"),
            ActionState.HOLDING: State("▣", "draining: takes no new job", "busy"),
            ActionState.DRAINED: State("■", "drained: runs no job", "busy"),
            ActionState.RELEASING: State("◁", "being returned", "busy"),
            ActionState.RELEASED: State("✓", "returned to service", "calm"),
            ActionState.OVERRIDDEN: State("↩", "changed by a person", "plain"),
            ActionState.FAILED: State("✖", "refused by the scheduler", "urgent"),
            ActionState.EXPIRED: State("∅", "expired, never started", "plain"),
        }.items()
    },
    **{
        f"outcome {outcome.value}": shown
        for outcome, shown in {
            Outcome.CONFIRMED: State("✖", "failure confirmed", "urgent"),
            Outcome.NOT_CONFIRMED: State("✓", "no failure", "calm"),
            Outcome.UNKNOWN: State("?", "cannot be known", "plain"),
        }.items()
    },
    **{
        f"calibration {state.value}": shown
        for state, shown in {
            CalibrationState.HOLDS: State("✓", "calibrated", "calm"),
            CalibrationState.UNKNOWN: State("?", "too few outcomes to tell", "plain"),
            CalibrationState.BROKEN: State("✖", "not calibrated", "urgent"),
        }.items()
    },
    "machine failed": State("✖", "failed GPU", "urgent"),
    "machine out": State("■", "out of service", "busy"),
    "machine waits": State("◆", "waits for approval", "soon"),
    "machine flagged": State("▲", "at risk", "soon"),
    "machine incident": State("●", "open incident", "busy"),
    "machine blind": State("?", "no data", "soon"),
    "machine ok": State("·", "nothing known", "calm"),
}


_AVOIDED: Final = State("▣", "avoided: gets jobs last", "busy")


def state_of(kind: str, value: str) -> State:
    """Return how a state is shown; an unknown one is shown as it is."""
    return _STATES.get(f"{kind} {value}", State("○", value.replace("_", " "), "plain"))


def action_state(step: Step, state: ActionState) -> State:
    """Return how the state of an action is shown; a machine that is avoided still takes jobs."""
    if step is Step.AVOID and state is ActionState.HOLDING:
        return _AVOIDED
    return state_of("action", state.value)


def action_mark(action: Action | ActionAnswer) -> Markup:
    """Return the mark of an action's state."""
    return _mark(action_state(action.step, action.state))


def state_mark(kind: str, value: object) -> Markup:
    """Return the mark of a state: a shape and a word."""
    return _mark(state_of(kind, str(getattr(value, "value", value))))


def _mark(state: State) -> Markup:
    return Markup('<span class="state {}"><span aria-hidden="true">{}</span> {}</span>').format(
        state.tone, state.shape, state.word
    )


def ago(at: int, now: int) -> str:
    """Return the distance of a time from now.

    Examples
    --------
    >>> [ago(0, n * MINUTE) for n in (0, 3, 120, 4320)], ago(5 * MINUTE, 0)
    (['just now', '3 min ago', '2 h ago', '3 days ago'], 'in 5 min')
    """
    distance = abs(now - at)
    if distance < MINUTE:
        return "just now"
    if distance < 2 * HOUR:
        text = f"{distance // MINUTE} min"
    elif distance < 2 * DAY:
        text = f"{distance // HOUR} h"
    else:
        text = f"{distance // DAY} days"
    return f"{text} ago" if at < now else f"in {text}"


def coded(text: str) -> Markup:
    """Return text with what stands between backticks marked as code.

    Examples
    --------
    >>> coded("run `a<b` now")
    Markup('run <code>a&lt;b</code> now')
    """
    parts = [escape(part) for part in text.split("`")]
    marked = (
        Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts)
    )
    return Markup("").join(marked)


def when(value: object, now: Nanoseconds) -> Markup:
    """Return a time, relative and absolute.

    Parameters
    ----------
    value : int, str or None
        Nanoseconds since 1970 UTC, or ISO 8601.
    now : int
    """
    text = format_iso(value) if isinstance(value, int) else value
    time = parse_utc(text)
    if time is None:
        return Markup("—")
    shown = moment(time, year=abs(now - time.as_unit("ns").value) > 300 * DAY)
    at = int(time.as_unit("ns").value)
    return Markup('<time datetime="{}">{} <small>({})</small></time>').format(
        escape(str(text)), ago(at, now), shown
    )


def path_of(kind: str, name: object) -> str:
    """Return the address of the page of a GPU, machine, job or incident.

    Examples
    --------
    >>> path_of("gpu", "S 1/2"), path_of("incident", 17)
    ('/gpu/S%201%2F2', '/incident/17')
    """
    return f"/{kind}/{quote(str(name), safe='')}"
