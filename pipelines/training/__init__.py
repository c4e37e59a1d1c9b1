"""Train, retrain, register and promote predictors."""
