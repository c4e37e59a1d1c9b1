"""Parsers of host output: texts of nvidia-smi, the kernel and Prometheus become readings."""
