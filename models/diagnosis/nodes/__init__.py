"""The check of nodes before a job starts, by short collectives between them."""
