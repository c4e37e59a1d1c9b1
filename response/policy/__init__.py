"""Policy: from a finding to its severity, and from that to a step."""
