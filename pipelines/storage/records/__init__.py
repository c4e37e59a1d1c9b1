"""Records on disk: the store, its files by date, compaction, and slices of a fleet."""
