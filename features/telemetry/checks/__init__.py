"""Results of health checks, as DCGM and other tools of a host print them."""
