"""Node check before a job starts, by short collectives between nodes."""
