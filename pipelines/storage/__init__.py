"""Records on disk and predictors in MLflow: written under a temporary name, then renamed."""
