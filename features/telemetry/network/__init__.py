"""Counters of network ports: their texts, and the events that their increases are."""
