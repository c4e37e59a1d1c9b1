"""A simulated fleet: records, CMDB and the truth about every failure."""
