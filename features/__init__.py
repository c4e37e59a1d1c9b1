"""Tables to arrays: from GPU records to what a model sees.

Everything here is a pure function of its arguments: no clock, no file, no network. Times are
nanoseconds since 1970 UTC (int64), intervals are half-open unless a name says otherwise, and a
function that must not look into the future gets records and failures that end before it.
"""
