"""The neural networks; TensorFlow is imported on first use."""
