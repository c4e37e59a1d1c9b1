"""Diagnosis of training jobs: reading a job's folder, verdicts, node checks and pages."""
