"""A job that ended: which rank failed first, and which only followed."""
