"""Acting on findings: the ledger, the drivers of schedulers, the loop and its API."""
