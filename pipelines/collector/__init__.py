"""Collector service: accepts batches from agents and keeps every batch that it has acknowledged."""
