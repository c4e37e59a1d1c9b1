"""Speed of searching logs for all patterns of the knowledge base, on one core.

    python benchmarks/log_search.py [--short]

Prints megabytes per CPU second of the search alone, and of reading a log completely, compared with
`re` searching for the same patterns one after another, on the same generated log of a training job.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections.abc import Callable, Sequence
from functools import partial

from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.log_scan import LogScan
from forewarn.features.diagnosis.log_lines.progress_lines import learn_progress
from forewarn.pipelines.diagnosis.parts.knowledge_base import load_patterns

_PART = 2**18


def made_log(lines: int, errors: float) -> bytes:
    """Return log lines of steps; a share of them is followed by an error."""
    rng = random.Random(1)
    texts = []
    for step in range(lines):
        texts.append(
            f"[2025-03-01 {step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d},000] "
            f"[INFO] [train.py:120] step {step} | loss: {rng.random():.4f} | "
            f"{rng.random() * 900:.1f} ms\n"
        )
        if rng.random() < errors:
            texts.append(f"shard {step} failed: Connection reset by peer\n")
    return "".join(texts).encode()


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a smaller log")
    lines = 50_000 if parser.parse_args().short else 1_000_000
    matcher = load_patterns()
    for errors in (0.0, 0.01, 0.5):
        text = made_log(lines, errors)
        parts = [text[start : start + _PART] for start in range(0, len(text), _PART)]
        known = seconds(partial(_search, matcher, parts))
        whole = seconds(partial(_scan, matcher, parts))
        size = len(text) / 1e6
        print(
            f"{size:.0f} MB, errors after {errors:.0%} of lines: search {size / known:.0f} MB/s, "
            f"all that is read {size / whole:.0f} MB/s"
        )
    sample = made_log(2_000, 0.0)
    single = [re.compile(f"(?i){_plain(p.expression)}".encode()) for p in matcher.patterns]
    slow = seconds(lambda: [list(regular.finditer(sample)) for regular in single])
    print(f"`re`, pattern after pattern: {len(sample) / 1e6 / slow:.1f} MB/s")


def _search(matcher: LogMatcher, parts: Sequence[bytes]) -> None:
    for part in parts:
        list(matcher.lines(part))


def _scan(matcher: LogMatcher, parts: Sequence[bytes]) -> None:
    scan = LogScan(matcher, progress=learn_progress(b"".join(parts[:1])))
    for part in parts:
        scan.feed(part)


def _plain(expression: str) -> str:
    """Return an expression with its flags moved to the front, as `re` requires."""
    return expression.replace("(?i)", "").replace("(?i:", "(?:")


if __name__ == "__main__":
    main()
