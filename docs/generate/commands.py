"""The reference of the commands, from the parser of the command line."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator

from docs.generate.markdown import escaped, table

from forewarn.pipelines.cli.main import build_parser

__all__ = ["commands_page"]

HEAD = """# Commands

Every command of `forewarn` with its options and an example, for people who call it from a shell,
a script or a scheduler. `forewarn COMMAND --help` prints the same text. Exit codes and output
formats: [formats and commands](formats.md).

"""


def commands_page() -> str:
    """Return the page of all commands as Markdown."""
    root = build_parser(None)
    rows, sections = [], []
    for name, text, parser in _subcommands(root):
        rows.append((f"[`{name}`](#{name})", escaped(text)))
        sections.append(_section(parser, text, level=2))
    return HEAD + table(("command", "what it does"), rows) + "\n" + "\n".join(sections)


def _subcommands(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Yield (name, help, parser) of the commands below a parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield name, helps.get(name, ""), command


def _section(parser: argparse.ArgumentParser, text: str, level: int) -> str:
    """Return the description, options and example of a command, and its subcommands."""
    title = parser.prog.removeprefix("forewarn ")
    anchor = title.replace(" ", "-")
    parts = [f"{'#' * level} {title} {{ #{anchor} }}\n"]
    parts.append(escaped(parser.description or f"{text[:1].upper()}{text[1:]}.") + "\n")
    inner = list(_subcommands(parser))
    if not inner:
        parts.append(f"```text\n{_usage(parser)}\n```\n")
        if extra := parser.get_default("extra"):
            parts.append(f"Needs the extra `[{extra}]`.\n")
        if rows := list(_option_rows(parser)):
            parts.append(table(("option", "default", "meaning"), rows))
        if example := (parser.epilog or "").partition("example:")[2]:
            lines = "\n".join(line.removeprefix("  ") for line in example.strip("\n").splitlines())
            parts.append(f"Example:\n\n```console\n{lines}\n```\n")
    parts += [_section(command, words, level + 1) for _, words, command in inner]
    return "\n".join(parts)


def _usage(parser: argparse.ArgumentParser) -> str:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split()).replace(" [-h]", "")
    wrapped = textwrap.wrap(
        usage, 88, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrapped)


def _option_rows(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        yield _names(action), _default(action), escaped(_help(parser, action))


def _names(action: argparse.Action) -> str:
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}"
        if action.choices
        else (action.dest.upper() if action.option_strings else action.dest)
    )
    if isinstance(value, tuple):
        value = " ".join(value)
    if not action.option_strings:
        return f"`{value}`"
    takes_value = action.nargs != 0
    names = ", ".join(action.option_strings)
    return f"`{names} {value}`" if takes_value else f"`{names}`"


def _default(action: argparse.Action) -> str:
    if action.required:
        return "required"
    if action.default is None or action.default == argparse.SUPPRESS or action.nargs == 0:
        return ""
    values = action.default if isinstance(action.default, list | tuple) else [action.default]
    return f"`{','.join(map(str, values))}`"


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = action.help or ""
    if "%" in text:
        text = text % {**vars(action), "prog": parser.prog}
    if _default(action):  # it has a column of its own
        text = re.sub(r" ?\(default: [^)]*\)", "", text)
    return text
