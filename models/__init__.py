"""Models that say how likely a GPU is to fail within the horizon.

The contract: `fit` sees training instances only; `score` returns numbers in [0, 1], and higher is
worse. Scores rank; `calibration` makes probabilities of them. The same seed and the same
instances give the same scores. Arrays in, arrays out: nothing here reads a clock, and the only
files are a model's own, in native formats, never pickles. TensorFlow, LightGBM and scikit-learn
are imported on first use, so importing this package is cheap.

`registry` makes and loads models by name, `ensembles` combines their scores.
"""
