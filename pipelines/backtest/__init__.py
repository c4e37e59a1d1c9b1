"""How good a list would have been: the walk through past records, and its report."""
