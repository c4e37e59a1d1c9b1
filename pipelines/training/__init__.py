"""Training, retraining, registration and promotion of predictors."""
