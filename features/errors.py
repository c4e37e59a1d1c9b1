"""The base class of errors that the user can correct."""

__all__ = ["InputError"]


class InputError(ValueError):
    """Invalid input or usage; the message is one line that names what was got and expected."""
