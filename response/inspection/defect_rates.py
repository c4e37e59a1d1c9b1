"""Rates of defects by category, learned from inspections of machines drawn at random.

Only these are a fair sample: the other inspections are where defects were expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from forewarn.features.inspection.check_table import CheckCategory

__all__ = ["PRIOR_INSPECTIONS", "learned_rates"]

PRIOR_INSPECTIONS: Final = 100.0
"""The assumed rate counts for as much as so many inspections: after 100 of its own, a site's
results weigh as much."""


def learned_rates(
    assumed: Mapping[CheckCategory, float],
    drawn: Mapping[CheckCategory, tuple[int, int]],
    found_shares: Mapping[CheckCategory, float],
) -> dict[CheckCategory, float]:
    """Return the probability that a machine has a defect that nothing speaks for, by category.

    The share of inspections that find a defect has a beta distribution, whose mean is divided by
    the share of defects that they find.

    Parameters
    ----------
    assumed : mapping of str to float
        Probability of a defect without any results.
    drawn : mapping of str to (int, int)
        Inspections of machines drawn at random: those that found a defect, and all.
    found_shares : mapping of str to float
        Share of defects that such an inspection finds, above 0.

    Returns
    -------
    dict of str to float
        Of the categories of `assumed`.

    Examples
    --------
    A defect on 2 % of the machines, of which half are found: 1 of 100 inspections. Then 2 of 300:

    >>> learned_rates({"gpu": 0.02}, {"gpu": (2, 300)}, {"gpu": 0.5})
    {'gpu': 0.015}
    """
    rates: dict[CheckCategory, float] = {}
    for name, probability in assumed.items():
        hits, inspections = drawn.get(name, (0, 0))
        share = found_shares.get(name, 1.0)
        mean = (PRIOR_INSPECTIONS * probability * share + hits) / (PRIOR_INSPECTIONS + inspections)
        rates[name] = min(1.0, mean / share)
    return rates
