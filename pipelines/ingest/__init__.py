"""Ingest of records from Prometheus, from files of hosts and from the collector."""
