"""Diagnosis of a training job: crash, hang, slow rank, jitter, and node checks."""
