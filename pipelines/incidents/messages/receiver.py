"""What a receiver of messages is, and how it refuses one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.messages.message import Message
from forewarn.pipelines.runtime.http_post import HttpAnswer, HttpPoster, PostError

__all__ = ["Receiver", "SendError", "post_or_raise"]

_MALFORMED = (400, 413, 415, 422)


@dataclass(frozen=True, slots=True)
class SendError(Exception):
    """A receiver did not accept a message.

    Attributes
    ----------
    why : str
        One line without secrets.
    retry_after : float or None
        Seconds that the receiver asks to wait.
    malformed : bool
        The receiver refuses this message, and may accept others.
    """

    why: str
    retry_after: float | None = None
    malformed: bool = False

    def __str__(self) -> str:
        """Return the reason."""
        return self.why


class Receiver(Protocol):
    """A way to tell people or programs."""

    def send(self, message: Message, now: Nanoseconds) -> None:
        """Send a message.

        Raises
        ------
        SendError
            If it was not accepted.
        """
        ...

    def close(self) -> None:
        """Close connections."""
        ...


def post_or_raise(poster: HttpPoster, content: bytes, **headers: str) -> HttpAnswer:
    """Post JSON; headers are named with `_` for `-`.

    Raises
    ------
    SendError
        If the server does not accept it.
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        answer = poster.post(content, {"Content-Type": "application/json"} | named)
    except PostError as error:
        raise SendError(str(error)) from None
    if not answer.accepted:
        why = f"HTTP {answer.status} {answer.text}".strip()
        raise SendError(why, answer.retry_after, malformed=answer.status in _MALFORMED)
    return answer
