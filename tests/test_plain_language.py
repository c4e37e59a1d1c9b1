"""Texts and names use the terms of docs/glossary.md, not those of docs/retired_terms.txt."""

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RETIRED = "docs/retired_terms.txt"
TEXTS = (".html", ".ipynb", ".md", ".py", ".service", ".toml", ".yaml", ".yml")
STRINGS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


class Retired(NamedTuple):
    pattern: re.Pattern[str]
    prose_only: bool
    instead: str


def retired_terms(text: str) -> list[Retired]:
    rows = [line.rsplit(" | ", 2) for line in text.splitlines() if line and line[0] != "#"]
    return [
        Retired(re.compile(pattern.strip(), re.IGNORECASE), where.strip() == "prose", instead)
        for pattern, where, instead in rows
    ]


def prose_and_names(path: str, text: str) -> tuple[list[str], list[str]]:
    """Return texts for people, without quoted code, and identifiers split into words."""
    texts, names = [text], []
    if path.endswith(".py"):
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        texts = [token.string for token in tokens if token.type in STRINGS]
        names = [token.string for token in tokens if token.type == tokenize.NAME]
    elif path.endswith(".toml"):
        texts = re.findall(r"#.*|\"[^\"\n]*\"", text)
    lines = [line for text in texts if text.count(" ") > 1 for line in text.splitlines()]
    prose = [re.sub(r"`[^`]*`|\{[^{}]*\}", "", line) for line in lines]
    words = [re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ") for name in set(names)]
    return prose, words


def matches(path: str, text: str, terms: list[Retired]) -> Iterator[str]:
    prose, names = prose_and_names(path, text)
    for lines, searched in ((prose, terms), (names, [t for t in terms if not t.prose_only])):
        any_term = re.compile("|".join(f"(?:{t.pattern.pattern})" for t in searched), re.IGNORECASE)
        for line in filter(any_term.search, lines):
            for term in searched:
                if hit := term.pattern.search(line):
                    yield f"{path}: {hit[0]!r} (write: {term.instead}): {line.strip()[:100]}"


def tracked_texts() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.splitlines()
    return [name for name in names if name.endswith(TEXTS) and (ROOT / name).is_file()]


def test_no_retired_terms() -> None:
    terms = retired_terms((ROOT / RETIRED).read_text())
    found = [
        hit
        for path in tracked_texts()
        if path != Path(__file__).relative_to(ROOT).as_posix()
        for hit in matches(path, (ROOT / path).read_text(), terms)
    ]
    assert not found, "\n".join([f"{len(found)} matches", *found])


def test_matches_in_prose_and_identifiers() -> None:
    terms = retired_terms(r"\bbrakes?\b | any | interlock" + "\n" + r"\bat rest\b | prose | idle")
    code = """def with_brakes():
    'Data at rest; `brakes` and `at rest` are quoted.'
    return at_rest["brake"]
"""
    hits = list(matches("x.py", code, terms))
    assert [hit.split("'")[1] for hit in hits] == ["at rest", "brakes"]


def test_glossary_defines_each_term_once() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs/glossary.md").read_text(), re.M
    )
    terms = [term.strip() for term, _, _ in rows if term.strip("- ") and term != "term"]
    assert terms
    assert len(terms) == len(set(terms))
    for term, meaning, source in rows:
        if term.strip("- ") and term != "term":
            assert meaning.strip().endswith("."), term
            assert source.strip(), term
