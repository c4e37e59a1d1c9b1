"""Stored predictors: their folders, the MLflow registry, and the drift of their inputs."""
