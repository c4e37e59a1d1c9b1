r"""How often a job should save, and whether a warning is worth a checkpoint or a move.

For interruptions at a constant rate and a checkpoint that costs C, the interval that loses least
is about sqrt(2 C M) with M the mean time between interruptions (Young 1974); where C is not small
against M, Daly's next term counts (Daly 2006, equation 20). A warning with precision p is worth a
checkpoint if more than C / p has passed since the last one (Aupy, Robert, Vivien and Zaidouni,
arXiv 1302.3752, first order).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "CheckpointAdvice",
    "advise_checkpoint",
    "best_interval_seconds",
    "failure_rate",
    "lost_share",
    "move_pays_from",
    "save_pays_after_seconds",
]

_FIRST_ORDER_LIMIT = 0.1  # of the mean time between interruptions; a larger cost needs Daly's term


def failure_rate(probabilities: Iterable[float], horizon_seconds: float) -> float:
    """Return the rate at which any of some GPUs fails, in failures a second.

    Parameters
    ----------
    probabilities : iterable of float
        Chance of each GPU to fail within the horizon, at least 0 and below 1.
    horizon_seconds : float

    Raises
    ------
    ValueError
        If a probability is out of range, or the horizon is not positive.

    Examples
    --------
    A thousand GPUs of which 0.27 % fail a day stop a job on 93 % of the days.

    >>> round(1 - math.exp(-86_400 * failure_rate([0.0027] * 1_000, 86_400)), 2)
    0.93
    """
    if not horizon_seconds > 0:
        raise ValueError(f"`horizon_seconds` must be positive, got {horizon_seconds}.")
    total = 0.0
    for probability in probabilities:
        if not 0 <= probability < 1:
            raise ValueError(f"a probability must be at least 0 and below 1, got {probability}.")
        total -= math.log1p(-probability)
    return total / horizon_seconds


def best_interval_seconds(save_seconds: float, rate: float) -> float:
    """Return the time between two checkpoints at which least is lost, infinite at a rate of 0.

    Parameters
    ----------
    save_seconds : float
        Time that training pauses for a checkpoint.
    rate : float
        Interruptions a second.

    Raises
    ------
    ValueError
        If the cost is not positive, or the rate is negative.

    Examples
    --------
    >>> best_interval_seconds(30.0, 1 / 54_000)
    1800.0
    """
    if not save_seconds > 0:
        raise ValueError(f"`save_seconds` must be positive, got {save_seconds}.")
    if not rate >= 0:
        raise ValueError(f"`rate` must not be negative, got {rate}.")
    if rate == 0:
        return math.inf
    mean = 1 / rate
    if save_seconds <= _FIRST_ORDER_LIMIT * mean:
        return math.sqrt(2 * save_seconds * mean)
    if save_seconds >= 2 * mean:
        return mean
    ratio = save_seconds / (2 * mean)
    return (
        math.sqrt(2 * save_seconds * mean) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_seconds
    )


def lost_share(
    interval_seconds: float, save_seconds: float, rate: float, restart_seconds: float
) -> float:
    """Return the share of time that checkpoints and interruptions cost, at most 1.

    First order: C / T + rate (T / 2 + R).

    Parameters
    ----------
    interval_seconds, save_seconds : float
        Training time between two checkpoints, and the cost of one.
    rate : float
        Interruptions a second.
    restart_seconds : float
        From an interruption to the first step of the next run.
    """
    if math.isinf(interval_seconds):
        return 0.0 if rate == 0 else 1.0
    loss = save_seconds / interval_seconds + rate * (interval_seconds / 2 + restart_seconds)
    return min(1.0, loss)


def save_pays_after_seconds(save_seconds: float, precision: float) -> float:
    """Return how long the last checkpoint must be past for a warning to be worth another one.

    Raises
    ------
    ValueError
        If the precision is not above 0 and at most 1.

    Examples
    --------
    >>> save_pays_after_seconds(60.0, 0.25)
    240.0
    """
    _check_precision(precision)
    return save_seconds / precision


def move_pays_from(planned_loss_seconds: float, unplanned_loss_seconds: float) -> float:
    """Return the precision above which it pays to leave a machine before it fails, at most 1.

    A planned stop saves first, so that it loses less than an unplanned one.

    Examples
    --------
    >>> move_pays_from(300.0, 1_200.0)
    0.25
    """
    if unplanned_loss_seconds <= planned_loss_seconds:
        return 1.0
    return planned_loss_seconds / unplanned_loss_seconds


def _check_precision(precision: float) -> None:
    if not 0 < precision <= 1:
        raise ValueError(f"a precision must be above 0 and at most 1, got {precision}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAdvice:
    """How often a job should save today.

    Attributes
    ----------
    chance_of_interruption : float
        Within a day.
    interruptions_per_day : float
    interval_steps : int or None
        Steps between two checkpoints; None if nothing interrupts the job.
    interval_seconds : float
        Of so many steps.
    lost_share : float
        With this interval.
    lost_share_third, lost_share_triple : float
        With a third and three times of it.
    """

    chance_of_interruption: float
    interruptions_per_day: float
    interval_steps: int | None
    interval_seconds: float
    lost_share: float
    lost_share_third: float
    lost_share_triple: float


def advise_checkpoint(
    *, step_seconds: float, save_seconds: float, restart_seconds: float, rate: float
) -> CheckpointAdvice:
    """Return how often a job should save.

    Parameters
    ----------
    step_seconds, save_seconds : float
        Time of a training step, and time that training pauses for a checkpoint.
    restart_seconds : float
        From an interruption to the first step of the next run.
    rate : float
        Interruptions a second.

    Raises
    ------
    ValueError
        If a time is not positive, or the rate is negative.
    """
    if not step_seconds > 0:
        raise ValueError(f"`step_seconds` must be positive, got {step_seconds}.")
    if not restart_seconds >= 0:
        raise ValueError(f"`restart_seconds` must not be negative, got {restart_seconds}.")
    best = best_interval_seconds(save_seconds, rate)
    steps = None if math.isinf(best) else max(1, round(best / step_seconds))
    interval = math.inf if steps is None else steps * step_seconds
    shares = [
        lost_share(interval * factor, save_seconds, rate, restart_seconds)
        for factor in (1, 1 / 3, 3)
    ]
    return CheckpointAdvice(
        chance_of_interruption=-math.expm1(-86_400 * rate),
        interruptions_per_day=86_400 * rate,
        interval_steps=steps,
        interval_seconds=interval,
        lost_share=shares[0],
        lost_share_third=shares[1],
        lost_share_triple=shares[2],
    )
