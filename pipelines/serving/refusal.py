"""Why a request is not taken, and what its sender is told."""

from __future__ import annotations

__all__ = ["RefusedError"]


class RefusedError(Exception):
    """A request that is not taken: status and reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status

    def answer(self) -> dict[str, object]:
        """Return what the sender is told, as JSON holds it."""
        return {"error": str(self)}
