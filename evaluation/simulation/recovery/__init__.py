"""A simulated year of one large job: its faults, and what each way to recover loses to them.

All times are hours since the start of the year.
"""
