"""GPU records: checked files to one table in order, and what is known of failures.

Times are nanoseconds since 1970 UTC (int64). Rows lie by GPU and time, no two of one GPU at one
time. A file that breaks the format is a `RecordsError` that names the file and the column.
"""
