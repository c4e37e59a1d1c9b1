"""The daily list: scores, reasons, pages, and what became of past lists."""
