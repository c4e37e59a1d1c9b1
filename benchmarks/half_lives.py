"""What a half-life of training instances that is chosen anew at each retraining is worth.

    python -m benchmarks.half_lives --seeds 1,2,3
    python -m benchmarks.half_lives --records RECORDS --config tests/real_data/drives.toml \
        --every 120 --first 300 --keep 1

A training learns from all of the past, and an instance weighs half for each half-life that it is
old. The product's is four times the longest training length (`[training] half_life`). Here it is
chosen among one, two, four and eight times, and none: each is trained at each retraining, and that
one is taken whose scores of the windows before had the highest average precision, weighed by
failing instances, as far as their labels were known by then; of equal ones that which is nearest
to the default, and the default where nothing is known yet. `the last window` looks at the last of
those windows with a known failing instance only, as the product does for a training length.

Protocol, written before looking: chosen on seeds 1, 2, 3 and on ST31500541AS. What ranks better
there than the default, its paired interval above 0 on the seeds pooled, is run on seeds 321 to 326;
only what is better there, too, would become the default. Everything is compared twice, for trees
and with a quarter of the vote for the linear model, each with its own choice.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import numpy as np
from benchmarks.measured_fleet import Floats, Labels, Study
from benchmarks.ranking_figures import Figures, average_draws, mean_tables, print_table
from benchmarks.slope_draws import known_labels
from benchmarks.studied_fleets import StudiedFleets
from benchmarks.training_rows import TrainingRows

from forewarn.features.prediction.instances import UNKNOWN
from forewarn.models.prediction.log_odds import logit

__all__ = ["chosen_half_lives", "figures_of"]

Factor = int | None  # of the longest training length
FACTORS: tuple[Factor, ...] = (4, 8, 2, None, 1)  # the default first, then as near as they are
_NAMES = {1: "one length", 2: "two", 4: "four (default)", 8: "eight", None: "none"}
_NEGATIVES, _LINEAR = 50, 0.25


def chosen_half_lives(
    study: Study, scores: Mapping[Factor, Sequence[Floats]], *, last: bool = False
) -> list[Factor]:
    """Return the half-life that each window's retraining takes; the first mapped is the default.

    Parameters
    ----------
    study : Study
    scores : mapping of half-life to ndarrays
        Of the test rows of each window.
    last : bool
        Look at the last window with a known failing instance only.
    """
    draws = np.ones((1, int(study.machine.max()) + 1))
    choices = [next(iter(scores))]
    for number in range(1, len(study.windows)):
        labels = _compared_on(study, number, last=last)
        merits = {
            factor: float(average_draws(study, of_factor[:number], draws, labels)[0])
            for factor, of_factor in scores.items()
        }
        merits = {factor: merit for factor, merit in merits.items() if np.isfinite(merit)}
        choices.append(max(merits or choices[:1], key=lambda factor: merits.get(factor, 0.0)))
    return choices


def _compared_on(study: Study, number: int, *, last: bool) -> Labels:
    """Return the labels that a retraining compares half-lives on, `UNKNOWN` elsewhere."""
    labels = known_labels(study, number)
    failing = [w for w in study.windows[:number] if (labels[w.tested] == 1).any()]
    if last and failing:
        others = np.setdiff1d(np.arange(len(labels)), failing[-1].tested)
        labels[others] = UNKNOWN
    return labels


def _scores(study: Study, name: str) -> dict[Factor, list[Floats]]:
    """Return the log odds of a model trained with each half-life, window by window."""
    scores: dict[Factor, list[Floats]] = {}
    for factor in FACTORS:
        half_life = None if factor is None else factor * study.longest
        scores[factor] = [
            TrainingRows.of(
                study, window.known, window.labels, half_life=half_life, negatives=_NEGATIVES
            ).scores(study, name, window.tested)
            for window in study.windows
        ]
    return {factor: [logit(s) for s in of_factor] for factor, of_factor in scores.items()}


def _rows(study: Study, title: str, scores: Mapping[Factor, list[Floats]]) -> dict[str, Figures]:
    """Return the figures of each half-life, and of those that are chosen."""
    rows = {f"{title}: {_NAMES[factor]}": scores[factor] for factor in FACTORS}
    for name, last in (("chosen", False), ("chosen on the last window", True)):
        choices = chosen_half_lives(study, scores, last=last)
        print(f"{title}, {name}: {', '.join(_NAMES[choice] for choice in choices)}")
        rows[f"{title}: {name}"] = [scores[c][number] for number, c in enumerate(choices)]
    return {name: Figures.of(study, of_row, chances=True) for name, of_row in rows.items()}


def figures_of(study: Study) -> list[dict[str, Figures]]:
    """Return a table for trees, and one with a quarter of the vote for the linear model."""
    trees, linear = _scores(study, "gbdt"), _scores(study, "linear")
    pairs = {factor: zip(trees[factor], linear[factor], strict=True) for factor in FACTORS}
    both = {
        factor: [(1 - _LINEAR) * tree + _LINEAR * line for tree, line in of_factor]
        for factor, of_factor in pairs.items()
    }
    return [_rows(study, "trees", trees), _rows(study, "with a quarter linear", both)]


def main() -> None:
    """Print two tables for each fleet, and two for all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    StudiedFleets.add_options(parser)
    tables = []
    for title, study in StudiedFleets(parser.parse_args()):
        tables.append(figures_of(study))
        for table in tables[-1]:
            print_table(title, table)
    for of_fleets in zip(*tables, strict=True):
        if len(of_fleets) > 1:
            print_table("all", mean_tables(of_fleets))


if __name__ == "__main__":
    main()
