"""What a detector learns from tasks that were mostly healthy."""
