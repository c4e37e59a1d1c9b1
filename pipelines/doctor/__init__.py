"""Whether records can be trained on, and what to mend first."""
