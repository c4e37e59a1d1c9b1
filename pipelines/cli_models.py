"""The commands around the registry: retrain, and models."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.features.errors import InputError
from forewarn.pipelines.command import (
    Parser,
    add_at,
    add_command,
    add_config,
    add_records,
    settings_of,
    whole,
)
from forewarn.pipelines.terminal import say

if TYPE_CHECKING:
    from forewarn.pipelines.registry import Registry, Version

__all__ = ["add_models", "add_retrain", "add_up"]


def add_retrain(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add `forewarn retrain`."""
    command = add_command(
        commands,
        "retrain",
        _retrain,
        "retrain as of a moment, and promote what has earned it; exit code 1 if it has not",
        "forewarn retrain --records /tmp/fleet/records --config my.toml --at 2025-02-10",
    )
    add_records(command)
    add_config(command)
    add_at(command)
    command.add_argument("--json", action="store_true", help="one JSON object on stdout")


def _retrain(args: argparse.Namespace) -> int:
    from forewarn.pipelines.job import open_job
    from forewarn.pipelines.registry import Registry
    from forewarn.pipelines.retrain import retrain
    from forewarn.pipelines.stages import note

    settings = settings_of(args)
    job = open_job(args.records, settings)
    for text in job.notes:
        note(text)
    registry = Registry(settings.registry, create=True)
    try:
        done = retrain(job, args.at, registry)
    except InputError:
        registry.discard()
        raise
    if args.json:
        print(json.dumps(done.as_dict()))
        return 0 if done.promoted else 1
    say(f"version {done.version} ({done.name}), trained on {done.length_days:g} days")
    if done.comparison is not None:
        found = done.comparison
        bounds = "" if found.interval is None else " [{:.3f}, {:.3f}]".format(*found.interval)
        say(
            f"average precision on {found.windows} finished windows {found.challenger:.3f}, "
            f"champion {found.champion:.3f}, difference {found.difference:+.3f}{bounds}"
        )
    if done.promoted:
        print("promoted: it is the champion now")
    else:
        say(f"refused, version {done.champion or 'none'} stays: {'; '.join(done.reasons)}")
    return 0 if done.promoted else 1


def add_models(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add `forewarn models list | show | promote | rollback`."""
    parent = commands.add_parser(
        "models", help="look at registered predictors, change the champion"
    )
    kinds = parent.add_subparsers(required=True, metavar="WHAT")
    for name, run, text in (
        ("list", _list, "list all registered predictors, the newest first"),
        ("show", _show, "show all that is known of one"),
        ("promote", _promote, "make one the champion, whatever the gate said"),
        ("rollback", _rollback, "make the champion before the present one the champion again"),
    ):
        example = f"forewarn models {name}" + (" 3" if name in ("show", "promote") else "")
        command = add_command(kinds, name, run, text, f"{example} --config my.toml")
        if name in ("show", "promote"):
            command.add_argument("version", help="number of the version")
        add_config(command)
        command.add_argument("--json", action="store_true", help="one JSON object a line on stdout")


_port = whole(1, 65535)


def add_up(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add `forewarn up`."""
    command = add_command(
        commands,
        "up",
        _up,
        "start Airflow and MLflow on loopback, with a simulated fleet that lives on",
        "forewarn up --folder /tmp/up",
    )
    command.add_argument("--folder", type=Path, default=Path("up"), help="folder (default: up)")
    command.add_argument("--gpus", type=whole(1, 1_000_000), default=300, metavar="N", help="GPUs")
    command.add_argument("--seed", type=whole(0), default=0, metavar="S", help="seed")
    command.add_argument("--airflow-port", type=_port, default=8080, metavar="P", help="port")
    command.add_argument("--mlflow-port", type=_port, default=5000, metavar="P", help="port")


def _up(args: argparse.Namespace) -> int:
    from forewarn.pipelines.up import run_up

    run_up(
        args.folder,
        n_gpus=args.gpus,
        seed=args.seed,
        airflow_port=args.airflow_port,
        mlflow_port=args.mlflow_port,
    )
    return 0


def _registry(args: argparse.Namespace) -> Registry:
    from forewarn.pipelines.registry import Registry

    return Registry(settings_of(args).registry)


def _told(version: Version) -> dict[str, object]:
    from forewarn.features.records import DAY
    from forewarn.pipelines.moments import iso

    return {
        "version": version.number,
        "name": version.name,
        "aliases": list(version.aliases),
        "trained_at": None if version.trained_at is None else iso(version.trained_at),
        "train_length_days": None if version.length is None else version.length / DAY,
        "gate": version.tags.get("forewarn.gate", ""),
    }


def _say(version: Version, as_json: bool) -> None:
    from forewarn.features.records import DAY
    from forewarn.pipelines.moments import iso

    told = _told(version)
    if as_json:
        print(json.dumps(told))
        return
    words = [f"{version.number:>4}"]
    if version.trained_at is None or version.length is None:
        words.append("not registered by forewarn")
    else:
        words += [version.name, iso(version.trained_at), f"{version.length / DAY:g} days"]
    say("  ".join([*words, str(told["gate"]), ", ".join(version.aliases)]))


def _list(args: argparse.Namespace) -> int:
    registry = _registry(args)
    with registry.in_one_line():
        versions = registry.versions()
    for version in versions:
        _say(version, args.json)
    if not versions and not args.json:
        print("no predictor is registered yet: forewarn retrain makes one")
    return 0


def _show(args: argparse.Namespace) -> int:
    registry = _registry(args)
    with registry.in_one_line():
        version = registry.version(args.version)
        told = _told(version) | {"facts": registry.load_version(version).facts}
    print(json.dumps(told, indent=None if args.json else 1))
    return 0


def _promote(args: argparse.Namespace) -> int:
    from forewarn.pipelines.moments import iso
    from forewarn.pipelines.stages import note

    registry = _registry(args)
    with registry.in_one_line(), registry.locked("promotion"):
        before, version = registry.champion(), registry.version(args.version)
        registry.load_version(version)  # a champion that cannot be loaded makes no list
        registry.promote(version.number)
        if before and (before.trained_at or 0) > (version.trained_at or 0):
            note(
                f"version {version.number} was trained to {iso(version.trained_at or 0)}, before "
                f"version {before.number} ({iso(before.trained_at or 0)}), whose place it takes"
            )
        return _champion(registry, args.json)


def _rollback(args: argparse.Namespace) -> int:
    registry = _registry(args)
    with registry.in_one_line(), registry.locked("promotion"):
        registry.rollback()
        return _champion(registry, args.json)


def _champion(registry: Registry, as_json: bool) -> int:
    champion = registry.champion()
    assert champion is not None
    _say(champion, as_json)
    return 0
