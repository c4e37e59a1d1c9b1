"""Fit and predict: arrays in, arrays out.

No module here reads a clock. The only files are a model's own, in native formats, never pickles.
`prediction` predicts which GPU will fail, `detection` finds the faulty machine of a running task;
neither imports the other. TensorFlow, LightGBM and scikit-learn are imported on first use, so
importing this package is cheap.
"""
