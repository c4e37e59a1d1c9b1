"""Parsers of what Ascend NPUs and their tools report."""
