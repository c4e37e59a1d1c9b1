"""Results of health checks that tools of a host print: DCGM, and whatever else checks a machine."""
