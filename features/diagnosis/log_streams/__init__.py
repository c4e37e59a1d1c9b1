"""Streams of log lines by rank and machine, from files of any form."""
