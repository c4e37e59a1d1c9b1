"""Storage of records on disk and of predictors in MLflow; files are written atomically."""
