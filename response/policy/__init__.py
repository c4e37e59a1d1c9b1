"""Policy: severity and step of each finding."""
