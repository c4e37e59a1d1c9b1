"""HTTP service for agents: serves the policy and accepts batches, both only with a token."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from forewarn.features.time_units import SECOND
from forewarn.pipelines.collector.batch_intake import BatchIntake
from forewarn.pipelines.collector.clock_error import ClockError
from forewarn.pipelines.collector.collector_metrics import CollectorMetrics
from forewarn.pipelines.serving.request_bodies import BodyReader, RefusedError, bearer_token
from forewarn.pipelines.serving.service_metrics import metrics_response
from forewarn.pipelines.serving.tokens import TokenHolder, Tokens

__all__ = ["CollectorApp"]

_log = logging.getLogger("forewarn.collect")


@dataclass(slots=True)
class CollectorApp:
    """Application of the collector.

    Attributes
    ----------
    tokens : Tokens
    policy : mapping
        Policy for agents as a JSON object.
    intake : BatchIntake
    bodies : Bodies
    trouble : callable
        Returns the problem of the service, or None.
    metrics : CollectorMetrics
    """

    tokens: Tokens
    policy: Mapping[str, Any]
    intake: BatchIntake
    bodies: BodyReader
    trouble: Callable[[], str | None] = lambda: None
    metrics: CollectorMetrics = field(default_factory=CollectorMetrics)

    def app(self) -> Starlette:
        """Return the service as an ASGI application."""
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/metrics", self._metrics),
                Route("/v1/policy", self._policy),
                Route("/v1/batches", self._batches, methods=["POST"]),
            ]
        )

    async def _health(self, _: Request) -> Response:
        trouble = self.trouble()
        if trouble is None:
            return PlainTextResponse("ok\n")
        return PlainTextResponse(f"{trouble}\n", status_code=503)

    async def _metrics(self, request: Request) -> Response:
        return metrics_response(self.metrics, request.headers.get("accept", ""))

    async def _policy(self, request: Request) -> Response:
        try:
            self._speaker(request)
        except RefusedError as refused:
            return self._refusal(request, refused)
        return JSONResponse(dict(self.policy))

    async def _batches(self, request: Request) -> Response:
        """Store a batch on disk before answering."""
        try:
            speaker = self._speaker(request)
            async with self.bodies.read(request) as body:
                kind = request.headers.get("content-type", "").split(";")[0].strip()
                answer = await asyncio.wrap_future(self.intake.submit(body, kind, speaker))
        except RefusedError as refused:
            return self._refusal(request, refused)
        except ClientDisconnect:
            return Response(status_code=400)
        self.metrics.count_batch(answer["rows"], answer["too_old"])
        return JSONResponse(answer)

    def _speaker(self, request: Request) -> TokenHolder:
        """Return the owner of the request's token."""
        speaker = self.tokens.speaker(bearer_token(request))
        if speaker is None:
            raise RefusedError(403, "an invalid token")
        return speaker

    def _refusal(self, request: Request, refused: RefusedError) -> Response:
        client = request.client.host if request.client else "unknown"
        _log.warning(
            "refused %s from %s: %d, %s", request.url.path, client, refused.status, refused
        )
        self.metrics.refuse(refused.status)
        if isinstance(refused, ClockError):
            self.metrics.skews.note(refused.host, refused.ahead / SECOND)
        return JSONResponse(refused.answer(), status_code=refused.status)
