"""Safety interlocks: conditions under which forewarn only observes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from forewarn.features.duration import format_duration
from forewarn.features.time_units import DAY, SECOND, Nanoseconds
from forewarn.response.decision.manual_override import Override
from forewarn.response.state.finding import Finding, FindingKind, Provenance
from forewarn.response.state.response_settings import ResponseSettings

__all__ = [
    "HEARTBEATS",
    "Freeze",
    "Interlock",
    "KillSwitchActivation",
    "ResponderHealth",
    "active_interlocks",
    "missing_heartbeats",
]

HEARTBEATS: Final = ("list", "loop", "drift")
"""Signals that `missing_heartbeats` checks."""

_MODEL_KINDS = frozenset({FindingKind.AT_RISK, FindingKind.VERDICT})


@dataclass(frozen=True, slots=True)
class Interlock:
    """Condition under which forewarn only observes.

    Attributes
    ----------
    reason : str
    until : int or None
        Nanoseconds since 1970 UTC. None: until a person or a new state of the inputs ends it.
    model : str or None
        Restricts the interlock to predictions: of this model version, or of every model if empty.
        None: it blocks every step.
    kill_switch : bool
        Set by a person; it also blocks manual drains.
    """

    reason: str
    until: Nanoseconds | None
    model: str | None = None
    kill_switch: bool = False

    def blocks(self, findings: Iterable[Finding]) -> bool:
        """Tell whether the interlock blocks a step that is supported by these findings alone."""
        if self.model is None:
            return True
        return all(
            finding.kind in _MODEL_KINDS and self.model in ("", finding.model_version)
            for finding in findings
        )


@dataclass(frozen=True, slots=True)
class Freeze:
    """Configured span without actions: from `start`, up to but excluding `end`; nanoseconds UTC."""

    start: Nanoseconds
    end: Nanoseconds
    why: str


@dataclass(frozen=True, slots=True)
class KillSwitchActivation:
    """Activated kill switch: `by` is the file or the person, `at` is in nanoseconds UTC."""

    by: str
    at: Nanoseconds | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ResponderHealth:
    """State of forewarn itself that the interlocks check.

    Attributes
    ----------
    kill_switch : KillSwitchActivation or None
        From the file or from the ledger.
    overrides : sequence of Override
    list_length : int or None
        Flagged rows of the newest list.
    usual_length : float or None
        Median length of the lists before it.
    drifted : tuple of str
        Inputs whose distribution has drifted since training.
    drifted_at : int or None
        Time of the drift report; None if unknown.
    policy_since : int or None
        First use of this policy; None if unknown.
    models_since : mapping of str to int
        First use of each model version.
    freezes : sequence of Freeze
    last_list, last_loop : int or None
        Heartbeats; None if there was none.
    """

    kill_switch: KillSwitchActivation | None = None
    overrides: Sequence[Override] = ()
    list_length: int | None = None
    usual_length: float | None = None
    drifted: tuple[str, ...] = ()
    drifted_at: Nanoseconds | None = None
    policy_since: Nanoseconds | None = None
    models_since: Mapping[str, Nanoseconds] = field(default_factory=dict)
    freezes: Sequence[Freeze] = ()
    last_list: Nanoseconds | None = None
    last_loop: Nanoseconds | None = None


def active_interlocks(
    health: ResponderHealth, *, settings: ResponseSettings, now: Nanoseconds
) -> tuple[Interlock, ...]:
    """Return the active safety interlocks, the kill switch first.

    They block new actions. Releases, findings and the ledger continue.
    """
    return (
        *_stopped(health),
        *_frozen(health, now),
        *_overridden(health, settings, now),
        *_new_policy(health, settings, now),
        *_new_models(health, settings, now),
        *_long_list(health, settings),
        *_drifted(health, settings, now),
    )


def missing_heartbeats(
    health: ResponderHealth, *, settings: ResponseSettings, now: Nanoseconds
) -> dict[str, str]:
    """Return an alert for each missing heartbeat: at-risk list, loop, drift report."""
    heartbeats = (
        ("list", health.last_list, settings.list_every),
        ("loop", health.last_loop, settings.loop_every),
    )
    alerts = {
        name: f"no {name} {'so far' if last is None else f'for more than {_words(every)}'}"
        for name, last, every in heartbeats
        if last is None or now - last > every
    }
    end = _drift_end(health, settings)
    if health.drifted and end is not None and end <= now:
        alerts["drift"] = (
            f"no drift report for more than {_words(settings.drift_every)}: the last one named "
            f"{_first_names(health.drifted)}, and no longer blocks predictions"
        )
    return alerts


def _words(span: int) -> str:
    return format_duration(span / SECOND)


def _stopped(health: ResponderHealth) -> Iterable[Interlock]:
    if health.kill_switch is not None:
        why = f": {health.kill_switch.why}" if health.kill_switch.why else ""
        yield Interlock(
            f"the kill switch is on, by {health.kill_switch.by}{why}", None, kill_switch=True
        )


def _frozen(health: ResponderHealth, now: Nanoseconds) -> Iterable[Interlock]:
    for freeze in health.freezes:
        if freeze.start <= now < freeze.end:
            yield Interlock(f"freeze: {freeze.why}", freeze.end)


def _overridden(
    health: ResponderHealth, settings: ResponseSettings, now: Nanoseconds
) -> Iterable[Interlock]:
    """Yield the circuit breaker: too many manual overrides within a day."""
    # An override in the future counts too: the clock may have been set back. Overrides of findings
    # from a shared token say nothing about the policy.
    counted = [o for o in health.overrides if o.vouched is Provenance.HOST]
    # What the loop noticed at once, by one person, is one event on several machines.
    events = {(o.at, o.who) for o in counted}
    ends = sorted(Nanoseconds(at + DAY) for at, _ in events if at + DAY > now)
    limit = settings.overrides_a_day
    if len(ends) >= limit > 0:
        words = f"{limit} or more actions were overridden within a day"
        yield Interlock(words, ends[len(ends) - limit])


def _new_policy(
    health: ResponderHealth, settings: ResponseSettings, now: Nanoseconds
) -> Iterable[Interlock]:
    since = health.policy_since
    if since is not None and now < since + settings.first_day:
        words = f"the policy is in its first {_words(settings.first_day)}"
        yield Interlock(words, Nanoseconds(since + settings.first_day))


def _new_models(
    health: ResponderHealth, settings: ResponseSettings, now: Nanoseconds
) -> Iterable[Interlock]:
    for version, since in sorted(health.models_since.items()):
        if now < since + settings.first_day:
            words = f"model {version} is in its first {_words(settings.first_day)}"
            yield Interlock(words, Nanoseconds(since + settings.first_day), model=version)


def _long_list(health: ResponderHealth, settings: ResponseSettings) -> Iterable[Interlock]:
    length, usual = health.list_length, health.usual_length
    if length is not None and usual and length >= settings.max_list_ratio * usual:
        words = f"the newest list has {length} rows, usually {usual:g}"
        yield Interlock(words, None, model="")


def _drifted(
    health: ResponderHealth, settings: ResponseSettings, now: Nanoseconds
) -> Iterable[Interlock]:
    """Yield input drift until its report expires; a report without a time never expires."""
    end = _drift_end(health, settings)
    if health.drifted and (end is None or now < end):
        words = f"the inputs of the model have drifted: {_first_names(health.drifted)}"
        yield Interlock(words, end, model="")


def _drift_end(health: ResponderHealth, settings: ResponseSettings) -> Nanoseconds | None:
    at = health.drifted_at
    return None if at is None else Nanoseconds(at + settings.drift_every)


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
