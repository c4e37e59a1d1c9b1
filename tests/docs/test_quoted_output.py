"""Pages of the documentation quote what the program prints, and commands that it accepts."""

from __future__ import annotations

import ast
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.pipelines.cli.main import build_parser, main

ROOT = Path(__file__).parents[2]
POLICY = ROOT / "docs/how-to/write_policy.md"
BLOCKED = ROOT / "docs/how-to/find_out_why_a_step_was_blocked.md"
CALL = re.compile(r"(^ *|[$] |[$][(]|/|=\S+ |nohup )forewarn [a-z]")
SEPARATORS = {";", "&", "&&", "|", ">", "2>"}


def message_texts(folder: Path) -> str:
    """Return all string constants of a package that are no docstrings, one a line."""
    texts = []
    for file in sorted(folder.rglob("*.py")):
        tree = ast.parse(file.read_text())
        docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts += [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in docstrings
        ]
    return "\n".join(texts)


def test_page_on_blocked_steps_quotes_reasons_of_decisions() -> None:
    table = re.findall(r"^\| (`.*?) \|", BLOCKED.read_text(), re.MULTILINE)
    quotes = [quote for cell in table for quote in re.findall("`(.*?)`", cell)]
    messages = message_texts(ROOT / "response") + message_texts(ROOT / "pipelines/incidents")
    missing = [quote for quote in quotes if quote not in messages]
    assert len(quotes) > 20
    assert not missing, f"no message contains {missing}: update {BLOCKED.relative_to(ROOT)}"


def shell_commands(page: Path) -> Iterator[list[str]]:
    """Yield the arguments of each call of forewarn in the code blocks of a page."""
    for block in re.findall(r"^ *```\w*\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for name, value in re.findall(r"\bfor (\w+) in (\S+)", block):
            block = block.replace(f"${name}", value)
        lines = re.sub(r"\\\n", " ", block).splitlines()
        for line in filter(CALL.search, lines):
            words = shlex.split(re.sub(r"\$\((.*?)\)", r" ; \1 ; ", line), comments=True)
            programs = [number for number, word in enumerate(words) if is_program(word)]
            for start in programs:
                rest = words[start + 1 :]
                ends = [number for number, word in enumerate(rest) if word in SEPARATORS]
                yield rest[: min(ends, default=len(rest))]


def is_program(word: str) -> bool:
    return word == "forewarn" or word.endswith("/forewarn")


PAGES = [
    page
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    if page.parent.name != "reference"  # synopses
    if any(shell_commands(page))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_on_pages_are_accepted(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = []
    for arguments in shell_commands(page):
        try:
            build_parser(arguments[0]).parse_args(arguments)
        except SystemExit:
            refused.append(f"forewarn {shlex.join(arguments)}: {capsys.readouterr().err}")
    assert not refused, "\n".join(refused)


def test_page_on_policies_quotes_policy_diff(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```$", POLICY.read_text(), re.MULTILINE | re.DOTALL)
    site_policy, console = (textwrap.dedent(block) for block in blocks[:2])
    monkeypatch.chdir(tmp_path)
    Path("site.toml").write_text(site_policy)
    command, _, output = console.partition("\n")
    assert main(shlex.split(command)[2:]) == 0
    assert capsys.readouterr().out == output
