"""A simulated fleet: records, CMDB and the ground truth about every failure."""
