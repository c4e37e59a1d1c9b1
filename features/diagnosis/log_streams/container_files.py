"""Names of logs in the folders of Kubernetes and Docker."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ContainerFile", "container_file", "continued_file", "is_docker_file"]

_NAME = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"
_POD_FOLDER = re.compile(
    rf"(?:^|.*/)(?P<namespace>{_NAME})_(?P<pod>{_NAME})_[0-9a-f]{{8}}[0-9a-f-]{{24,28}}/"
    rf"(?P<container>{_NAME})/\d+\.log(?:\.\d{{8}}-\d{{6}})?(?:\.gz)?"
)
_FLAT = re.compile(
    rf"(?:^|.*/)(?P<pod>{_NAME})_(?P<namespace>{_NAME})_(?P<container>{_NAME})-[0-9a-f]{{64}}\.log"
)
_DOCKER = re.compile(r"(?:^|.*/)[0-9a-f]{64}-json\.log(?:\.\d+)?(?:\.gz)?")
_ROTATED = re.compile(r"(.*(?:^|/)\d+\.log)\.\d{8}-\d{6}(?:\.gz)?")


@dataclass(frozen=True, slots=True)
class ContainerFile:
    """Who wrote a log of kubelet's folders.

    Attributes
    ----------
    namespace, pod, container : str
    """

    namespace: str
    pod: str
    container: str


def container_file(name: str) -> ContainerFile | None:
    """Read the path of a log below `/var/log/pods` or `/var/log/containers`.

    Examples
    --------
    >>> container_file("ml_llm-3_01234567-89ab-cdef-0123-456789abcdef/trainer/0.log").pod
    'llm-3'
    """
    match = _POD_FOLDER.fullmatch(name) or _FLAT.fullmatch(name)
    return ContainerFile(**match.groupdict()) if match else None


def continued_file(name: str) -> str:
    """Return the file that a rotated one was the start of, or the name itself.

    Examples
    --------
    >>> continued_file("trainer/0.log.20260101-000000.gz")
    'trainer/0.log'
    """
    match = _ROTATED.fullmatch(name)
    return match[1] if match else name


def is_docker_file(name: str) -> bool:
    """Return whether a file is named after the container's ID."""
    return _DOCKER.fullmatch(name) is not None
