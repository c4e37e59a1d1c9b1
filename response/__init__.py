"""Pure decisions: findings, state and a moment in, actions out.

A `Finding` is what somebody noticed; findings of one GPU or machine are an `Incident`; a policy and
limits make a `Decision` of it, and that an `Action` on a `Machine`. Nothing here reads a clock, a
file or a scheduler.
"""
