"""The error of a job that cannot run with its inputs."""

from __future__ import annotations

from forewarn.features.errors import InputError

__all__ = ["JobError"]


class JobError(InputError):
    """A job cannot run with its inputs; the message says what is missing."""
