"""After a decision: reconciliation with the scheduler, release, outcome."""
