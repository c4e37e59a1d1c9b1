"""What hosts say about their GPUs, joined to records and to evidence of failures.

Pure functions: no file and no clock. Texts are read by `parsers`; nothing here trusts a text to be
whole, and what could not be read is said, never guessed.
"""
