"""What interruptions cost a job, and what would make them cheaper.

All times are integers of nanoseconds since 1970 UTC, all spans are half open.
"""
