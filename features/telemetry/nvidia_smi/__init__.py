"""Outputs of nvidia-smi as scripts keep them: without headers, tables for people, `dmon`."""
