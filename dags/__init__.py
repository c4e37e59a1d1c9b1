"""The DAG files, which `forewarn up` runs and which a site copies to its scheduler."""
