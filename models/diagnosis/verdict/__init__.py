"""What a verdict on a job is made of: candidates, evidence, findings, probes."""
