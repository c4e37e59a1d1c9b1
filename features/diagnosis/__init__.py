"""What the parts of a job's folder say, as tables and arrays: texts and bytes in, no files."""
