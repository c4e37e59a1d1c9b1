"""Fit and predict: arrays in, arrays out.

Nothing here reads a clock, and the only files are a model's own, in native formats, never pickles.
`prediction` says which GPU will fail, `detection` which machine of a running task has gone bad;
neither knows the other. TensorFlow, LightGBM and scikit-learn are imported on first use, so
importing this package is cheap.
"""
