"""Leader election by a Lease, as the controllers of Kubernetes do it.

A lease counts as expired after its holder has not renewed it for its duration, as seen by the clock
of the observer: clocks of hosts are not compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import (
    MERGE,
    ApiServer,
    ConflictError,
    Json,
)

__all__ = ["Lease"]

_LEASES = "/apis/coordination.k8s.io/v1/namespaces"


@dataclass(slots=True)
class Lease:
    """A lease that at most one responder holds.

    Attributes
    ----------
    server : ApiServer
    name : str
        `NAMESPACE/NAME`.
    identity : str
        Differs between processes, also after a restart.
    duration : int
        Seconds after which others may take a lease that is not renewed.
    monotonic : callable
        Returns seconds of a clock that is never set.
    """

    server: ApiServer
    name: str
    identity: str
    duration: int
    monotonic: Callable[[], float] = time.monotonic
    holder: str = ""
    _seen: tuple[str, float] = field(default=("", 0.0))

    def acquire(self, after: int) -> int | None:
        """Take or renew the lease; return its term, or None while another process holds it.

        Parameters
        ----------
        after : int
            A new term is greater than this one, even if the lease was deleted.

        Raises
        ------
        DriverError
            If the API server does not answer or refuses.
        """
        namespace, _, name = self.name.partition("/")
        path = f"{_LEASES}/{namespace}/leases"
        lease = self.server.read(f"{path}/{name}")
        try:
            if lease is None:
                term, metadata = after + 1, {"name": name, "namespace": namespace}
                self.server.create(path, {"metadata": metadata, "spec": self._spec(term)})
            else:
                known = int(lease["spec"].get("leaseTransitions", 0))
                if lease["spec"].get("holderIdentity") == self.identity and known >= after:
                    term = known
                elif self._is_expired(lease):
                    term = max(known, after) + 1
                else:
                    self.holder = str(lease["spec"].get("holderIdentity", ""))
                    return None
                version = {"resourceVersion": lease["metadata"]["resourceVersion"]}
                body = {"metadata": version, "spec": self._spec(term)}
                self.server.patch(f"{path}/{name}", body, form=MERGE)
        except ConflictError:  # another process was faster
            return None
        return term

    def _is_expired(self, lease: Json) -> bool:
        version, now = str(lease["metadata"]["resourceVersion"]), self.monotonic()
        if version != self._seen[0]:
            self._seen = (version, now)
        return not lease["spec"].get("holderIdentity") or now >= self._seen[1] + self.duration

    def _spec(self, term: int) -> Json:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.duration,
            "leaseTransitions": term,
            "renewTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        }
