"""Policy replay: what a policy would have decided on the past of a fleet."""
