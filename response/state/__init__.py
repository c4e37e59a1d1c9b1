"""Values that decisions are made of: findings, machines, incidents, decisions, actions."""
