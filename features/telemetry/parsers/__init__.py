"""Readers of what hosts print: from the text of nvidia-smi, kernel or Prometheus to readings."""
