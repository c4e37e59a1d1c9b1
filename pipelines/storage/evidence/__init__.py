"""Evidence about machines from other sources: at-risk lists and kernel logs."""
