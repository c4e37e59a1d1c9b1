from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from importlib.metadata import metadata
from typing import Any

import pytest

from forewarn.pipelines.cli import collection
from forewarn.pipelines.cli.extras import extra_modules, require_extra
from forewarn.pipelines.cli.main import build_parser, main

# A Python in which only the modules of one extra and of the base package can be imported.
INSTALLED = """
import importlib, sys
from forewarn.pipelines.cli.extras import extra_modules
from forewarn.pipelines.cli.main import main

missing = {*extra_modules("all")} - {*extra_modules(sys.argv[1])}

class Installed:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name in missing else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Installed, sys.meta_path)
for name in missing & sys.modules.keys():
    raise SystemExit(f"the command line imports {name}")
"""
COMMANDS_HELP = """
import json
for words in json.loads(sys.argv[2]):
    try:
        main([*words, "--help"])
    except SystemExit as stop:
        assert stop.code == 0, words
"""


def run(extra: str, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", INSTALLED + code, extra, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def commands() -> Iterator[tuple[str, Any]]:
    """Yield the words of each command, and the parser of its options."""
    waiting: list[tuple[str, Any]] = [("", build_parser(None))]
    while waiting:
        words, parser = waiting.pop()
        if parser.get_default("run"):
            yield words.strip(), parser
        for action in parser._actions:
            if isinstance(action.choices, dict):
                waiting += ((f"{words} {name}", child) for name, child in action.choices.items())


COMMANDS = dict(commands())


def imported(run: Any) -> set[str]:
    """Return the modules that a command's function imports, and the functions it calls."""
    function = run.func if isinstance(run, partial) else inspect.unwrap(run)
    tree = ast.parse(inspect.getsource(inspect.getmodule(function) or function))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    names, modules, waiting = set(), set(), [function.__name__]
    while waiting:
        name = waiting.pop()
        names.add(name)
        for node in ast.walk(functions[name]):
            if isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module)
            elif isinstance(node, ast.Name) and node.id in functions.keys() - names:
                waiting.append(node.id)
    return modules


def test_each_command_names_its_extra() -> None:
    extras = {words: parser.get_default("extra") for words, parser in COMMANDS.items()}
    assert len(extras) > 40
    assert {*extras.values()} == {"", "score", "train", "server", "airflow", "tune"}
    assert {extras["agent"], extras["completion"], extras["diagnose collect"]} == {""}
    assert {extras["score"], extras["detect run"], extras["diagnose run"]} == {"score"}


@pytest.mark.parametrize("extra", ["", "score", "server"])
def test_command_imports_only_its_extra(extra: str) -> None:
    modules: set[str] = set()
    for parser in COMMANDS.values():
        if parser.get_default("extra") == extra:
            modules |= imported(parser.get_default("run"))
    done = run(extra, "for name in sys.argv[2:]: importlib.import_module(name)", *sorted(modules))
    assert done.returncode == 0, done.stderr


def test_help_needs_no_extra() -> None:
    done = run("", COMMANDS_HELP, json.dumps([[], *(words.split() for words in COMMANDS)]))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: forewarn") == len(COMMANDS) + 1


@pytest.mark.parametrize(
    "extra", ["score", "train", "server", "airflow", "dask", "postgresql", "tune"]
)
def test_extra_modules_have_known_names(extra: str) -> None:
    require_extra("forewarn", extra)
    assert [*extra_modules(extra)]


@pytest.mark.parametrize(
    ("installed", "words", "command", "extra"),
    [
        ("", "review --at-risk a --failures f", "review", "score"),
        ("score", "train --records r --at 2025-01-26 --model m", "train", "train"),
        ("", "detect fit --metrics m --model d", "detect fit", "train"),
        ("score", "collect --out records", "collect", "server"),
        ("train", "up", "up", "airflow"),
        ("score", "models list", "models list", "train"),
        # Before all options are parsed, or only with this option:
        ("", "simulate job --out j --fault loader", "simulate", "score"),
        ("score", "score --records r --model models:/m --at 2025-01-26 --out o", "score", "train"),
    ],
)
def test_missing_extra_is_one_line(installed: str, words: str, command: str, extra: str) -> None:
    done = run(installed, "sys.exit(main(sys.argv[2:]))", *words.split())
    line = rf'forewarn: error: `forewarn {command}` needs \w+: pip install "forewarn\[{extra}\]"\.'
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(line, done.stderr.rstrip()), done.stderr


def test_missing_module_of_no_extra_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(args: Namespace) -> int:
        del args
        raise ModuleNotFoundError("No module named 'forewarn.gone'", name="forewarn.gone")

    monkeypatch.setattr(collection, "_agent", broken)
    with pytest.raises(ModuleNotFoundError, match="gone"):
        main(["agent", "--policy", "agent.toml"])


def test_extras_build_on_each_other() -> None:
    assert set(metadata("forewarn").get_all("Provides-Extra", [])) >= {"all", "jobs"}
    assert {*extra_modules("score")} < {*extra_modules("train")} & {*extra_modules("server")}
    assert {*extra_modules("all")} > {"airflow", "distributed", "psycopg", "tensorflow", "fastapi"}
