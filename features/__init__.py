"""Features: parsers of telemetry, tables of records and the inputs of models.

Every function is pure: it reads no clock, no file and no network. Times are nanoseconds since 1970
UTC (int64). Intervals are half-open unless a name says otherwise. A function that must not use the
future receives records and failures that end before it.
"""
