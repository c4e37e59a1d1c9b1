"""Repair cases: where machines are in repair, which come back, and board told from chassis."""
