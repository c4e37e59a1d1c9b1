"""The HTTP API of incidents: findings in, incidents and actions out, and what people do."""
