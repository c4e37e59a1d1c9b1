"""The ledger: what was noticed, decided and done, and by whom, as rows of a database."""
