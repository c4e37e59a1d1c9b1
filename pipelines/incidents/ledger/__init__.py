"""The ledger: findings, incidents, decisions and actions as rows of a database."""
