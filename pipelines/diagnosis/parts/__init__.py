"""The parts of a job's folder: a reader for each, and what each part can judge."""
