"""Models that say how likely a GPU is to fail within the horizon.

The contract (`protocol`): `fit` sees training instances only; `score` returns numbers in [0, 1],
and higher is worse. Scores rank; `calibration` makes probabilities of them. The same seed and the
same instances give the same scores. `catalogue` makes and loads models by name, `ensembles`
combines their scores, `predictor` holds all that a list needs.
"""
