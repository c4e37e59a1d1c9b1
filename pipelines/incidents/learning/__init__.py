"""Training labels from incidents, as failures and out-of-service spans."""
