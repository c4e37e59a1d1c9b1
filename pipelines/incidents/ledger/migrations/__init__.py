"""Schema migrations of the ledger, which Alembic runs when a ledger is opened.

One module per migration: `ledger_NNNN.py` with `revision`, `down_revision` and `upgrade`. A
released migration is never changed. There is no downgrade: restore the backup.
"""
