"""Headline of the at-risk page: flagged GPUs, expected failures and urgency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from forewarn.pipelines.rendering.templates import amount, chance_text, count, plural

__all__ = ["Headline", "ListFigures", "headline"]

_LIKELY_PROBABILITY = 0.5
_HIGH_UNSCORED_SHARE = 0.05  # share of the fleet without data from which the headline warns


@dataclass(frozen=True, slots=True)
class ListFigures:
    """Numbers of a list that determine the headline.

    Parameters
    ----------
    n_scored, n_unscored, n_without_data : int
        Scored GPUs, unscored GPUs, and unscored GPUs without data.
    n_machines : int
        Known machines with a flagged GPU.
    n_on_machines : int
        All known GPUs of these machines, which a drain takes out of service.
    probabilities : sequence of float or None
        One per flagged GPU; None if it was flagged by rules.
    deadline : str
        Time by which the flagged GPUs are expected to fail, as text.
    n_blocked : int
        GPUs that are listed but not flagged because past lists were not calibrated.
    """

    n_scored: int
    n_unscored: int
    n_without_data: int
    n_machines: int
    n_on_machines: int
    probabilities: Sequence[float | None]
    deadline: str
    n_blocked: int = 0

    @property
    def n_flagged(self) -> int:
        """Number of flagged GPUs."""
        return len(self.probabilities)

    @property
    def known(self) -> list[float]:
        """Known probabilities of the flagged GPUs."""
        return [probability for probability in self.probabilities if probability is not None]

    @property
    def expected(self) -> float | None:
        """Expected failures among the flagged GPUs; None without probabilities."""
        return sum(self.known) if self.known else None

    @property
    def chance_of_any(self) -> float:
        """Probability that one of the flagged GPUs fails or more, if they fail independently."""
        return 1.0 - math.prod(1.0 - probability for probability in self.known)


@dataclass(frozen=True, slots=True)
class Headline:
    """Texts at the top of the page.

    Parameters
    ----------
    level : {"urgent", "soon", "calm", "rules", "empty", "blind"}
        Determines the appearance and the next steps.
    title, expectation, advice, cost, warning : str
        Summary, expected failures, urgency, cost of a false alarm, and share of the fleet without
        data. The last two may be empty.
    """

    level: str
    title: str
    expectation: str
    advice: str
    cost: str = ""
    warning: str = ""


def headline(listed: ListFigures) -> Headline:
    """Return the headline of a list.

    Parameters
    ----------
    listed : ListFigures

    Examples
    --------
    >>> day = ListFigures(800, 0, 0, 1, 8, [0.62], "2 March, 02:50 UTC")
    >>> print(headline(day).title, headline(day).expectation)
    1 GPU on 1 machine flagged It fails by 2 March, 02:50 UTC with probability 62 %.
    """
    if not listed.n_scored:
        return _nothing_scored(listed)
    if listed.n_blocked and not listed.n_flagged:
        return _flags_blocked(listed)
    if not listed.n_flagged:
        return _nothing_flagged(listed)
    title = plural(listed.n_flagged, "GPU")
    if listed.n_machines:
        title += f" on {plural(listed.n_machines, 'machine')}"
    level, advice = _urgency(listed)
    expectation, cost, warning = _expectation(listed), _cost(listed), _warning(listed)
    return Headline(level, f"{title} flagged", expectation, advice, cost, warning)


def _nothing_flagged(listed: ListFigures) -> Headline:
    """Return the headline of a list without flags."""
    advice = "Nothing to drain."
    if listed.n_without_data:
        advice += " Find out why some GPUs sent no data: see below."
    return Headline(
        "soon" if listed.n_without_data else "empty",
        "No GPU is flagged",
        f"None of the {plural(listed.n_scored, 'scored GPU')} is flagged.",
        advice,
        warning=_warning(listed),
    )


def _flags_blocked(listed: ListFigures) -> Headline:
    """Return the headline of a list whose flags are blocked by the calibration monitor."""
    n = listed.n_blocked
    return Headline(
        "soon",
        "No GPU is flagged: recent probabilities were not calibrated",
        f"The first {plural(n, 'GPU')} of the ranking would have been flagged. Outcomes are "
        "monitored, so that flags can return.",
        "Do not drain from this list: recent probabilities were not calibrated. Retrain.",
        warning=_warning(listed),
    )


def _warning(listed: ListFigures) -> str:
    """Return a warning if a large share of the fleet has no data."""
    share = listed.n_without_data / (listed.n_scored + listed.n_unscored)
    if share < _HIGH_UNSCORED_SHARE:
        return ""
    return (
        f"{plural(listed.n_without_data, 'GPU')} ({share:.0%} of the fleet) sent no usable records "
        "and could not be scored."
    ).replace("%", " %", 1)


def _nothing_scored(listed: ListFigures) -> Headline:
    """Return the headline of a list without scored GPUs."""
    if listed.n_unscored:
        return Headline(
            "blind",
            "No data: no GPU could be scored",
            f"All {plural(listed.n_unscored, 'known GPU')} are unscored.",
            "Find out why the records stopped. Until then it is unknown which GPUs are at risk.",
        )
    return Headline(
        "blind",
        "No data: there are no GPUs on this list",
        "No GPU had any record.",
        "Check that the collector is running and that the list was made from the right records.",
    )


def _expectation(listed: ListFigures) -> str:
    """Return how many flagged GPUs are expected to fail, from their probabilities."""
    expected, n = listed.expected, len(listed.known)
    if expected is None:
        return "Fixed rules flagged them and give no probability. Judge by the reasons."
    if n == 1:
        which = "It fails" if listed.n_flagged == 1 else "The GPU with a known probability fails"
        return f"{which} by {listed.deadline} with probability {chance_text(expected)}."
    these = f"these {count(n)}" if n == listed.n_flagged else f"the {count(n)} with a probability"
    return (
        f"At least one of {these} fails by {listed.deadline} with probability "
        f"{chance_text(listed.chance_of_any)}; expected number: {amount(expected, 1)}."
    )


def _urgency(listed: ListFigures) -> tuple[str, str]:
    """Return the level and how soon to act."""
    expected = listed.expected
    if expected is None:
        return "rules", "Check the reasons below now; drain only what a check confirms."
    likely = sum(1 for probability in listed.known if probability >= _LIKELY_PROBABILITY)
    if likely:
        verb = "is" if likely == 1 else "are"
        return "urgent", f"Act now: {plural(likely, 'GPU')} {verb} more likely than not to fail."
    if listed.chance_of_any >= _LIKELY_PROBABILITY:
        return "soon", (
            "Act when the job next stops: no single GPU is more likely than not to fail, "
            "but it is more likely than not that one of them does."
        )
    return "calm", "This can wait for working hours, unless a check below shows a fault."


def _cost(listed: ListFigures) -> str:
    """Return how many GPUs a drain of every flagged machine takes out of service."""
    if not listed.n_machines or not listed.n_on_machines:
        return ""
    several = {1: "the machine", 2: "both machines"}
    machines = several.get(listed.n_machines, f"all {count(listed.n_machines)} machines")
    text = f"Draining {machines} takes {plural(listed.n_on_machines, 'GPU')} out of service"
    if listed.expected is None:
        return f"{text}."
    return f"{text}, for an expected {amount(listed.expected, 1)} failures among the flagged GPUs."
