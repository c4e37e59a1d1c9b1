"""The commands `retrain` and `models` around the model registry."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from forewarn.features.errors import InputError
from forewarn.pipelines.cli.options import (
    Commands,
    add_at,
    add_command,
    add_config,
    add_group,
    add_json,
    add_records,
    load_config_option,
)
from forewarn.pipelines.cli.site_defaults import metrics_folder
from forewarn.pipelines.runtime.terminal import write_line

if TYPE_CHECKING:
    from forewarn.pipelines.storage.registry.model_registry import Registry
    from forewarn.pipelines.storage.registry.registered_version import Version
    from forewarn.pipelines.training.retraining_decision import RetrainingOutcome

__all__ = ["add_models", "add_retrain"]


def add_retrain(commands: Commands) -> None:
    """Add `forewarn retrain`."""
    command = add_command(
        commands,
        "retrain",
        _retrain,
        "retrain, and promote the model if it passes the gate; exit code 1 if it does not",
        "forewarn retrain --records /tmp/fleet/records --config my.toml --at 2025-01-26",
        extra="train",
    )
    add_records(command)
    add_config(command)
    add_at(command)
    add_json(command)


def _retrain(args: argparse.Namespace) -> int:
    from forewarn.pipelines.metrics.job_textfile import write_job
    from forewarn.pipelines.metrics.job_values import retrain_metrics
    from forewarn.pipelines.prediction_job import open_job
    from forewarn.pipelines.runtime.progress import note
    from forewarn.pipelines.storage.registry.model_registry import Registry
    from forewarn.pipelines.training.retrain import retrain

    settings = load_config_option(args)
    job = open_job(args.records, settings)
    for text in job.notes:
        note(text)
    registry = Registry.from_settings(settings, create=True)
    try:
        result = retrain(job, args.at, registry)
    except InputError:
        registry.discard()
        raise
    values = retrain_metrics(args.at, promoted=result.promoted)
    write_job(metrics_folder(args.config), "retrain", values)
    if args.json:
        print(json.dumps(result.as_dict()))
        return 0 if result.promoted else 1
    _print_outcome(result)
    return 0 if result.promoted else 1


def _print_outcome(result: RetrainingOutcome) -> None:
    write_line(
        f"version {result.version} ({result.name}), trained on {result.length_days:.3g} days"
    )
    if result.comparison is not None:
        comparison = result.comparison
        bounds = (
            "" if comparison.interval is None else " [{:.3f}, {:.3f}]".format(*comparison.interval)
        )
        write_line(
            f"average precision on {comparison.windows} finished windows "
            f"{comparison.challenger:.3f}, champion {comparison.champion:.3f}, "
            f"difference {comparison.difference:+.3f}{bounds}"
        )
    if result.promoted:
        print("promoted: it is the champion now")
    else:
        write_line(
            f"refused, version {result.champion or 'none'} stays: {'; '.join(result.reasons)}"
        )


def add_models(commands: Commands) -> None:
    """Add `forewarn models list | show | promote | rollback`."""
    kinds = add_group(commands, "models", "list registered models, change the champion")
    for name, run, text in (
        ("list", _list, "list all registered models, the newest first"),
        ("show", _show, "show everything known about a model"),
        ("promote", _promote, "make a model the champion, regardless of the gate"),
        ("rollback", _rollback, "make the previous champion the champion again"),
    ):
        example = f"forewarn models {name}" + (" 3" if name in ("show", "promote") else "")
        example += " --config my.toml"
        command = add_command(kinds, name, run, text, example, extra="train")
        if name in ("show", "promote"):
            command.add_argument("version", help="version number")
        add_config(command)
        add_json(command, "print one JSON object per line on stdout")


def _registry(args: argparse.Namespace) -> Registry:
    from forewarn.pipelines.storage.registry.model_registry import Registry

    return Registry.from_settings(load_config_option(args))


def _facts(version: Version) -> dict[str, object]:
    from forewarn.features.records.record_table import DAY
    from forewarn.pipelines.runtime.timestamps import format_iso

    return {
        "version": version.number,
        "name": version.name,
        "aliases": list(version.aliases),
        "trained_at": None if version.trained_at is None else format_iso(version.trained_at),
        "train_length_days": None if version.length is None else version.length / DAY,
        "gate": version.gate,
    }


def _print_version(version: Version, as_json: bool) -> None:
    from forewarn.features.records.record_table import DAY
    from forewarn.pipelines.runtime.timestamps import format_iso

    described = _facts(version)
    if as_json:
        print(json.dumps(described))
        return
    columns = [f"{version.number:>4}"]
    if version.trained_at is None or version.length is None:
        columns.append("not registered by forewarn")
    else:
        columns += [version.name, format_iso(version.trained_at), f"{version.length / DAY:g} days"]
    write_line("  ".join([*columns, str(described["gate"]), ", ".join(version.aliases)]))


def _list(args: argparse.Namespace) -> int:
    registry = _registry(args)
    with registry.in_one_line():
        versions = registry.versions()
    for version in versions:
        _print_version(version, args.json)
    if not versions and not args.json:
        print("no model is registered yet; `forewarn retrain` registers one")
    return 0


def _show(args: argparse.Namespace) -> int:
    registry = _registry(args)
    with registry.in_one_line():
        version = registry.version(args.version)
        described = _facts(version) | {"facts": registry.load_version(version).facts.to_dict()}
    print(json.dumps(described, indent=None if args.json else 1))
    return 0


def _promote(args: argparse.Namespace) -> int:
    from forewarn.pipelines.runtime.progress import note
    from forewarn.pipelines.runtime.timestamps import format_iso

    registry = _registry(args)
    with registry.in_one_line(), registry.locked("promotion"):
        before, version = registry.champion(), registry.version(args.version)
        registry.load_version(version)  # a champion that cannot be loaded would make no list
        registry.promote(version.number)
        if before and (before.trained_at or 0) > (version.trained_at or 0):
            note(
                f"version {version.number}, trained as of {format_iso(version.trained_at or 0)}, "
                f"replaces version {before.number}, trained later "
                f"({format_iso(before.trained_at or 0)})"
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
    _print_version(champion, as_json)
    return 0
