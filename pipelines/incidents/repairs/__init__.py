"""Repair cases out of the ledger: report, page, tickets and evidence."""
