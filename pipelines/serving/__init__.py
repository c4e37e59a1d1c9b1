"""Shared by all HTTP services: request limits, tokens, bodies, metrics, the listener."""
