"""Parts of a verdict on a job: candidates, evidence, findings and probes."""
