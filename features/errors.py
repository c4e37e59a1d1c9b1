"""The error that a user can mend."""

__all__ = ["InputError"]


class InputError(ValueError):
    """Bad input or usage; the message is one line that says what was found and expected."""
