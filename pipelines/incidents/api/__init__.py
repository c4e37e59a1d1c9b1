"""HTTP API for findings, incidents and manual actions."""
