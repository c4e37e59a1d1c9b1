"""E-mail over SMTP with TLS."""

from __future__ import annotations

import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.config.message_tables import is_loopback
from forewarn.pipelines.incidents.messages.message import Message
from forewarn.pipelines.incidents.messages.receiver import SendError
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import to_timestamps

__all__ = ["Mail"]

_TIMEOUT_SECONDS: Final = 10.0
_PORTS: Final = {"smtp": 587, "smtps": 465}
_MAX_SUBJECT: Final = 200
_PERMANENT: Final = 500


@dataclass(frozen=True, slots=True)
class Mail:
    """E-mail; the messages about one incident form a thread.

    Attributes
    ----------
    url : str
        `smtps://[USER@]HOST[:PORT]`, or `smtp://` with STARTTLS, without TLS only on this machine.
    password : str
    sender : str
    recipients : tuple of str
    ca : Path or None
        Certificates that are trusted instead of the usual ones.
    """

    url: str
    password: str
    sender: str
    recipients: tuple[str, ...]
    ca: Path | None = None

    def send(self, message: Message, now: Nanoseconds) -> None:
        """Send the e-mail to all recipients."""
        mail = self._mail(message, now)
        try:
            with self._connect() as server:
                if not self._is_private:
                    server.starttls(context=self._context())
                if user := urlsplit(self.url).username:
                    server.login(unquote(user), self.password)
                refused = server.send_message(mail)
        except smtplib.SMTPRecipientsRefused as error:
            raise SendError(f"all recipients are refused: {_codes(error.recipients)}") from None
        except smtplib.SMTPDataError as error:
            why = f"SMTP {error.smtp_code}"
            raise SendError(why, malformed=error.smtp_code >= _PERMANENT) from None
        except smtplib.SMTPResponseException as error:
            raise SendError(f"SMTP {error.smtp_code}") from None
        except (OSError, ValueError) as error:  # OSError: also other errors of smtplib
            raise SendError(type(error).__name__) from None
        if refused:  # the others have got it: another attempt would send it to them again
            note(f"message {message.id}: {len(refused)} recipients are refused, {_codes(refused)}")

    @property
    def _is_private(self) -> bool:
        """Whether the connection is encrypted from its start, or does not leave this machine."""
        parts = urlsplit(self.url)
        return parts.scheme == "smtps" or is_loopback(parts.hostname or "")

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=str(self.ca) if self.ca else None)
        except OSError as error:
            raise SendError(f"{self.ca} cannot be read as certificates ({error})") from None

    def _connect(self) -> smtplib.SMTP:
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        if parts.scheme == "smtps":
            context = self._context()
            return smtplib.SMTP_SSL(host, port, timeout=_TIMEOUT_SECONDS, context=context)
        return smtplib.SMTP(host, port, timeout=_TIMEOUT_SECONDS)

    def _mail(self, message: Message, now: Nanoseconds) -> EmailMessage:
        mail = EmailMessage()
        subject = " ".join(message.summary.split())[:_MAX_SUBJECT]
        mail["Subject"] = f"[forewarn] {subject}"
        mail["From"], mail["To"] = self.sender, ", ".join(self.recipients)
        mail["Date"] = format_datetime(to_timestamps([now])[0].to_pydatetime())
        mail["Message-ID"] = f"<{message.id}@forewarn>"
        mail["Auto-Submitted"] = "auto-generated"
        if message.incident is not None:
            mail["References"] = f"<{message.incident.key}@forewarn>"
        mail.set_content(message.text())
        return mail

    def close(self) -> None:
        """Close nothing: a connection lasts for one e-mail."""


def _codes(refused: dict[str, tuple[int, bytes]]) -> str:
    return ", ".join(sorted({str(code) for code, _ in refused.values()}))
