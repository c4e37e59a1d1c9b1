"""Optional dependencies (extras) of the package that commands require."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import metadata, requires
from importlib.util import find_spec

from packaging.requirements import Requirement

from forewarn.features.errors import InputError

__all__ = ["MissingExtraError", "extra_modules", "missing_extra", "require_extra"]

# Packages whose module has another name.
_MODULES = {
    "apache-airflow": "airflow",
    "google-re2": "re2",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "tensorflow-cpu": "tensorflow",
}


class MissingExtraError(InputError):
    """The extra that a command requires is not installed."""


@cache
def _requirements() -> tuple[Requirement, ...]:
    """Return the requirements of the installed package, parsed once."""
    return tuple(map(Requirement, requires("forewarn") or ()))


def extra_modules(extra: str, *, includes: bool = True) -> Iterator[str]:
    """Yield the modules of an extra, with or without those of the extras it includes."""
    for requirement in _requirements():
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name != "forewarn":
            yield _MODULES.get(requirement.name, requirement.name.replace("-", "_"))
        elif includes:
            for included in sorted(requirement.extras):
                yield from extra_modules(included)


def require_extra(command: str, extra: str) -> None:
    """Refuse a command if a package of its extra is missing.

    Extras included by the extra are checked as well.

    Raises
    ------
    MissingExtraError
        If a package is missing; nothing has been read or written then.
    """
    for module in extra_modules(extra):
        if find_spec(module) is None:
            raise _missing(command, module, extra)


def missing_extra(command: str, error: ModuleNotFoundError) -> MissingExtraError | None:
    """Return the error for an option that needs an extra; None if no extra has the module."""
    module = error.name or ""
    for extra in metadata("forewarn").get_all("Provides-Extra", []):
        if module in extra_modules(extra, includes=False):
            return _missing(command, module, extra)
    return None


def _missing(command: str, module: str, extra: str) -> MissingExtraError:
    return MissingExtraError(f'`{command}` needs {module}: pip install "forewarn[{extra}]".')
