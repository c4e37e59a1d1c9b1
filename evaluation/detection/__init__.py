"""Numbers about verdicts: who was named rightly, who wrongly, and how soon."""
