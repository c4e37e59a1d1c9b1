"""The policy of a site, and its replay on the past of a fleet."""
