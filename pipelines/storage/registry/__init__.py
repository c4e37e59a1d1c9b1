"""Predictors that are kept: their folders, the registry of MLflow, and how their inputs drift."""
