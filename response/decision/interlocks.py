"""Brakes: when forewarn trusts itself no longer and only observes."""

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
"""What `missing_heartbeats` looks for."""

_MODEL_KINDS = frozenset({FindingKind.AT_RISK, FindingKind.VERDICT})


@dataclass(frozen=True, slots=True)
class Interlock:
    """Something that makes forewarn observe only.

    Attributes
    ----------
    reason : str
        In words.
    until : int or None
        Nanoseconds since 1970 UTC. None: until a person or a new state of things ends it.
    model : str or None
        It holds for what models predict only: for those of this version, or for all where it is
        empty. None: for all that is done.
    kill_switch : bool
        A person has stopped all: it holds for what people want done, too.
    """

    reason: str
    until: Nanoseconds | None
    model: str | None = None
    kill_switch: bool = False

    def blocks(self, findings: Iterable[Finding]) -> bool:
        """Tell whether it holds for what rests on these findings alone."""
        if self.model is None:
            return True
        return all(
            finding.kind in _MODEL_KINDS and self.model in ("", finding.model_version)
            for finding in findings
        )


@dataclass(frozen=True, slots=True)
class Freeze:
    """A span in which nobody acts, from `start` up to and without `end`; nanoseconds UTC."""

    start: Nanoseconds
    end: Nanoseconds
    why: str


@dataclass(frozen=True, slots=True)
class KillSwitchActivation:
    """The kill switch is on. `by` names the file or the person, `at` is in nanoseconds UTC."""

    by: str
    at: Nanoseconds | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class ResponderHealth:
    """What forewarn knows of its own state.

    Attributes
    ----------
    stop : Stop or None
        The kill switch, wherever it was found.
    overrides : sequence of Override
    list_length : int or None
        Flagged rows of the newest list.
    usual_length : float or None
        Of the lists before it, as their median.
    drifted : tuple of str
        Inputs that are no longer what the model has learned from.
    drifted_at : int or None
        When that was seen; None if nobody knows.
    policy_since : int or None
        When this policy was first used; None if it is not known.
    models_since : mapping of str to int
        When each version of a model was first used.
    freezes : sequence of Freeze
    last_list, last_loop : int or None
        Signs of life; None if there was none so far.
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
    vitals: ResponderHealth, *, settings: ResponseSettings, now: Nanoseconds
) -> tuple[Interlock, ...]:
    """Return what makes forewarn observe only, the kill switch first.

    They stop what is new. Releases, findings and the ledger go on.
    """
    return (
        *_stopped(vitals),
        *_frozen(vitals, now),
        *_overridden(vitals, settings, now),
        *_new_policy(vitals, settings, now),
        *_new_models(vitals, settings, now),
        *_long_list(vitals, settings),
        *_drifted(vitals, settings, now),
    )


def missing_heartbeats(
    vitals: ResponderHealth, *, settings: ResponseSettings, now: Nanoseconds
) -> dict[str, str]:
    """Return what has stopped without a word: no list, loop or report of drift came.

    Each is an alert, by what it is about.
    """
    signs = (
        ("list", vitals.last_list, settings.list_every),
        ("loop", vitals.last_loop, settings.loop_every),
    )
    troubles = {
        name: f"no {name} came {'so far' if last is None else f'for more than {_words(every)}'}"
        for name, last, every in signs
        if last is None or now - last > every
    }
    end = _drift_end(vitals, settings)
    if vitals.drifted and end is not None and end <= now:
        troubles["drift"] = (
            f"no report of drift came for more than {_words(settings.drift_every)}: the last said "
            f"{_some(vitals.drifted)}, and holds predictions back no longer"
        )
    return troubles


def _words(span: int) -> str:
    return format_duration(span / SECOND)


def _stopped(vitals: ResponderHealth) -> Iterable[Interlock]:
    if vitals.kill_switch is not None:
        why = f": {vitals.kill_switch.why}" if vitals.kill_switch.why else ""
        yield Interlock(
            f"the kill switch is on, by {vitals.kill_switch.by}{why}", None, kill_switch=True
        )


def _frozen(vitals: ResponderHealth, now: Nanoseconds) -> Iterable[Interlock]:
    for freeze in vitals.freezes:
        if freeze.start <= now < freeze.end:
            yield Interlock(f"freeze: {freeze.why}", freeze.end)


def _overridden(
    vitals: ResponderHealth, settings: ResponseSettings, now: Nanoseconds
) -> Iterable[Interlock]:
    """Yield that people undo us; it ends when fewer than so many are left within a day."""
    # One that lies ahead of a clock that jumped back counts, too.
    # That people undo what forged findings asked for says nothing of the policy.
    counted = [o for o in vitals.overrides if o.vouched is Provenance.HOST]
    ends = sorted(Nanoseconds(o.at + DAY) for o in counted if o.at + DAY > now)
    most = settings.overrides_a_day
    if len(ends) >= most > 0:
        words = f"{most} or more actions were overridden within a day"
        yield Interlock(words, ends[len(ends) - most])


def _new_policy(
    vitals: ResponderHealth, settings: ResponseSettings, now: Nanoseconds
) -> Iterable[Interlock]:
    since = vitals.policy_since
    if since is not None and now < since + settings.first_day:
        words = f"the policy is in its first {_words(settings.first_day)}"
        yield Interlock(words, Nanoseconds(since + settings.first_day))


def _new_models(
    vitals: ResponderHealth, settings: ResponseSettings, now: Nanoseconds
) -> Iterable[Interlock]:
    for version, since in sorted(vitals.models_since.items()):
        if now < since + settings.first_day:
            words = f"model {version} is in its first {_words(settings.first_day)}"
            yield Interlock(words, Nanoseconds(since + settings.first_day), model=version)


def _long_list(vitals: ResponderHealth, settings: ResponseSettings) -> Iterable[Interlock]:
    length, usual = vitals.list_length, vitals.usual_length
    if length is not None and usual and length >= settings.max_list_ratio * usual:
        words = f"the newest list has {length} rows, and usually it has {usual:g}"
        yield Interlock(words, None, model="")


def _drifted(
    vitals: ResponderHealth, settings: ResponseSettings, now: Nanoseconds
) -> Iterable[Interlock]:
    """Yield that inputs have moved, until the report is too old; one without a time never is."""
    end = _drift_end(vitals, settings)
    if vitals.drifted and (end is None or now < end):
        words = f"the inputs of the model have drifted: {_some(vitals.drifted)}"
        yield Interlock(words, end, model="")


def _drift_end(vitals: ResponderHealth, settings: ResponseSettings) -> Nanoseconds | None:
    at = vitals.drifted_at
    return None if at is None else Nanoseconds(at + settings.drift_every)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
