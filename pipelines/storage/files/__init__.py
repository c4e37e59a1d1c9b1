"""Files: atomic writes, locks, names and listings, on disk or in an object store."""
