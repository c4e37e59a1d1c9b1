"""A job that is slow: which rank is late by itself."""
