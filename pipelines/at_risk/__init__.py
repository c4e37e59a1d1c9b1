"""Daily at-risk list: scores, reasons, pages and reviews of past lists."""
