"""What retraining learns from incidents, as failures and absences."""
