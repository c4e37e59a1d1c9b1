"""Neural networks; TensorFlow is imported on first use."""
