"""Linear models on bucketed features, fitted by logistic regression."""
