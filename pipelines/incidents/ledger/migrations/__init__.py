"""Steps from one schema of the ledger to the next; Alembic runs them when a ledger is opened.

One module a step: `ledger_NNNN.py` with `revision`, `down_revision` and `upgrade`. A step that has
been released is never changed. There is no way back: restore the backup.
"""
