"""The base class of errors that the user can correct."""

__all__ = ["InputError"]


class InputError(ValueError):
    """Invalid input or usage; the message is one line that names what was got and expected.

    Parameters
    ----------
    *texts : object
    is_transient : bool
        True if the same call may succeed later, such as when a service does not respond.
    """

    def __init__(self, *texts: object, is_transient: bool = False) -> None:
        super().__init__(*texts)
        self.is_transient = is_transient
