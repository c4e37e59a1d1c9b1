"""Readers for the parts of a job's folder."""
