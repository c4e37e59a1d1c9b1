"""Models that predict whether a GPU fails within the horizon.

Every model implements `failure_model.FailureModel`: `fit` receives training instances only, and
`score` returns numbers in [0, 1], higher for a higher risk. Scores rank instances; `calibration`
turns them into probabilities. The same seed and instances give the same scores. `model_catalogue`
creates and loads models by name, `ensembles` combines their scores, and `predictor` bundles
everything that a daily list needs.
"""
