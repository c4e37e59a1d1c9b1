"""Extras of the package: what a command needs beyond what an agent needs."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import metadata, requires
from importlib.util import find_spec

from packaging.requirements import Requirement

from forewarn.features.errors import InputError

__all__ = ["MissingExtraError", "extra_modules", "missing_extra", "require_extra"]

# Packages whose module is not called like them.
_MODULES = {
    "apache-airflow": "airflow",
    "google-re2": "re2",
    "scikit-learn": "sklearn",
    "tensorflow-cpu": "tensorflow",
}


class MissingExtraError(InputError):
    """A command whose extra is not installed."""


def extra_modules(extra: str, *, includes: bool = True) -> Iterator[str]:
    """Yield the modules of an extra, or of that alone without those that it includes."""
    for requirement in map(Requirement, requires("forewarn") or ()):
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name != "forewarn":
            yield _MODULES.get(requirement.name, requirement.name.replace("-", "_"))
        elif includes:
            for included in sorted(requirement.extras):
                yield from extra_modules(included)


def require_extra(command: str, extra: str) -> None:
    """Refuse a command if a package of its extra, or of one that it includes, is missing.

    Raises
    ------
    MissingExtraError
        If so; nothing has been read or written then.
    """
    for module in extra_modules(extra):
        if find_spec(module) is None:
            raise _missing(command, module, extra)


def missing_extra(command: str, error: ModuleNotFoundError) -> MissingExtraError | None:
    """Return what to install where an option needs an extra; None if no extra has the module."""
    module = error.name or ""
    for extra in metadata("forewarn").get_all("Provides-Extra", []):
        if module in extra_modules(extra, includes=False):
            return _missing(command, module, extra)
    return None


def _missing(command: str, module: str, extra: str) -> MissingExtraError:
    return MissingExtraError(f'`{command}` needs {module}: pip install "forewarn[{extra}]".')
