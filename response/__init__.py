"""Pure decisions: from findings, state and a moment to actions.

Findings about one GPU or machine form an `Incident`. A policy and limits turn it into a `Decision`,
and a decision that may be carried out into an `Action` on a `Machine`. Nothing here reads a clock,
a file or a scheduler.
"""
