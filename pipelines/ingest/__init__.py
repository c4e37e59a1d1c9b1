"""Records from Prometheus, from files of hosts, and from what the collector took in."""
