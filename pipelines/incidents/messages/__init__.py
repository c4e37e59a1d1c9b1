"""Messages about incidents: what is told to whom, the outbox in the ledger, and the receivers."""
