"""Communicators of NCCL: what their monitors report on each rank."""
