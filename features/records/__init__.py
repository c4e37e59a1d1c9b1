"""GPU records: validated files become one sorted table with its failures.

Times are nanoseconds since 1970 UTC (int64). Rows are sorted by GPU and time without duplicates. A
file that violates the format raises a `RecordsError` that names the file and the column.
"""
