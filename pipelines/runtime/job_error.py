"""The error of a job that cannot be done with what it was given."""

from __future__ import annotations

from forewarn.features.errors import InputError

__all__ = ["JobError"]


class JobError(InputError):
    """A job that cannot be done with what it was given; the message says what is missing."""
