"""Value types of the response: findings, machines, incidents, decisions, actions."""
