"""Readings and events of hosts, joined to records and to evidence of failures.

All functions are pure: no file and no clock. `parsers` reads the texts. Every text may be
incomplete; what cannot be read is counted and never guessed.
"""
