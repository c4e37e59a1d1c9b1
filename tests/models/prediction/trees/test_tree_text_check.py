from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lightgbm
import numpy as np
import pytest

from forewarn.models.prediction.trees.tree_text_check import check_tree_text

N_COLUMNS = 4


@pytest.fixture(scope="module")
def text() -> str:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 9, (400, N_COLUMNS)).astype(np.float32)
    labels = (table[:, 0] + table[:, 1] > 8) ^ (rng.random(400) < 0.1)
    parameters = {"objective": "binary", "verbosity": -1, "num_threads": 1, "num_leaves": 8}
    trained = lightgbm.train(parameters, lightgbm.Dataset(table, label=labels), 3)
    return str(trained.model_to_string())


def resized(text: str) -> str:
    """Recompute the sizes of the trees, by which LightGBM finds them."""
    trees = text[text.index("Tree=0\n") : text.index("end of trees\n")]
    sizes = [len(one) for one in re.findall(r"Tree=\d+\n.*?\n\n\n", trees, re.DOTALL)]
    assert sum(sizes) == len(trees)
    return re.sub(r"tree_sizes=.*", f"tree_sizes={' '.join(map(str, sizes))}", text)


def changed(text: str, field: str, change: Callable[[list[str]], list[str]]) -> str:
    """Change the values of a field of the second tree."""
    begin = text.index(f"\n{field}=", text.index("Tree=1\n")) + len(field) + 2
    end = text.index("\n", begin)
    words = change(text[begin:end].split(" "))
    return resized(text[:begin] + " ".join(words) + text[end:])


def test_lightgbm_output_is_accepted(text: str) -> None:
    check_tree_text(text, N_COLUMNS)
    assert resized(text) == text


def test_split_on_missing_values_is_accepted(text: str) -> None:
    check_tree_text(changed(text, "threshold", lambda words: ["inf", *words[1:]]), N_COLUMNS)


def test_tree_without_splits_is_accepted() -> None:
    alike = lightgbm.Dataset(np.zeros((50, 2)), label=np.arange(50) % 2)
    trained = lightgbm.train({"objective": "binary", "verbosity": -1}, alike, 2)
    check_tree_text(trained.model_to_string(), 2)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("split_feature", "1000000000", r"`split_feature` is 1000000000, expected 0 to 3"),
        ("split_feature", "-1", r"`split_feature` is -1, expected 0 to 3"),
        ("left_child", "1000000000", "do not form a tree"),
        ("left_child", "0", "do not form a tree"),
        ("right_child", "-1000000000", "do not form a tree"),
        ("right_child", "99999999999999999999", "`right_child` holds '99999999999999999999'"),
        ("leaf_value", "nan", "`leaf_value` holds 'nan', expected finite numbers"),
        ("leaf_value", "1e999", "`leaf_value` holds '1e999', expected finite numbers"),
        ("threshold", "nan", "`threshold` holds 'nan', expected finite numbers"),
        ("threshold", "-nan", "`threshold` holds '-nan', expected finite numbers"),
        ("leaf_count", "0", "`leaf_count` is 0, expected 1"),
        ("internal_count", "0", "`internal_count` is 0, expected 1"),
        ("decision_type", "1", "categorical splits"),
        ("decision_type", "18", "`decision_type` is 18, expected one of"),
        ("num_leaves", "1000000000", "`split_feature` holds 7 numbers, expected 999999999"),
        ("num_leaves", "0", "holds 7 numbers, expected -1"),
        ("num_cat", "1", "categorical splits or linear leaves"),
        ("is_linear", "1", "categorical splits or linear leaves"),
    ],
)
def test_wrong_number_is_refused(text: str, field: str, value: str, said: str) -> None:
    wrong = changed(text, field, lambda words: [value, *words[1:]])
    with pytest.raises(ValueError, match=f"tree 1: .*{said}"):
        check_tree_text(wrong, N_COLUMNS)


def test_cyclic_branches_are_refused(text: str) -> None:
    # Every split and leaf is the child of one split, but two of them form a cycle.
    wrong = changed(text, "left_child", lambda words: ["-1", "2", "1", *words[3:]])
    wrong = changed(wrong, "right_child", lambda words: ["-2", *words[1:]])
    with pytest.raises(ValueError, match=r"tree 1: .*do not form a tree"):
        check_tree_text(wrong, N_COLUMNS)


def test_missing_number_is_refused(text: str) -> None:
    wrong = changed(text, "leaf_value", lambda words: words[:-1])
    with pytest.raises(ValueError, match="tree 1: `leaf_value` holds 7 numbers, expected 8"):
        check_tree_text(wrong, N_COLUMNS)


@pytest.mark.parametrize(
    ("pattern", "value", "said"),
    [
        ("tree_sizes=\\d+", "tree_sizes=1000000000", "`tree_sizes` does not lead"),
        ("tree_sizes=.*", "tree_sizes=", "`tree_sizes` does not lead"),
        ("max_feature_idx=3", "max_feature_idx=1000000000", "`max_feature_idx` is '1000000000'"),
        ("num_class=1", "num_class=7", "`num_class` is '7', expected '1'"),
        ("feature_infos=\\S+ ", "feature_infos=", "`feature_infos` does not have 4 columns"),
        ("objective=.*", "objective=regression", "`objective` is 'regression'"),
        ("version=v4\n", "", "field `version` is missing"),
        ("version=v4\n", "version=v4\naverage_output=1\n", "field `average_output` is unknown"),
        ("Tree=2", "Tree=7", "tree 2: got a block 'Tree=7', expected 'Tree=2'"),
        ("Tree=0", "Tree=9", "is not a LightGBM model text"),
    ],
)
def test_wrong_header_is_refused(text: str, pattern: str, value: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_tree_text(re.sub(pattern, value, text, count=1), N_COLUMNS)


def test_truncated_text_is_refused(text: str) -> None:
    for end in range(0, text.index("end of trees") + 13, 97):
        with pytest.raises(ValueError, match=r"not a LightGBM model text|tree_sizes|tree \d|field"):
            check_tree_text(text[:end], N_COLUMNS)


CHANGED_AT_RANDOM = """
import random, re, sys
from pathlib import Path
import lightgbm, numpy as np
from forewarn.models.prediction.trees.compiled_trees import CompiledTrees
from forewarn.models.prediction.trees.tree_text_check import check_tree_text
text, source, accepted = Path(sys.argv[1]).read_text(), random.Random(0), 0
table = np.random.default_rng(1).integers(0, 9, (50, 4)).astype(np.float32)
numbers = [found.span() for found in re.finditer(r"-?[0-9]+", text[:text.index("end of trees")])]
for _ in range(300):
    begin, end = source.choice(numbers)
    word = "".join(source.choice("0123456789-") for _ in range(end - begin))
    wrong = text[:begin] + word + text[end:]
    try:
        check_tree_text(wrong, 4)
    except ValueError:
        continue
    accepted += 1
    trees = lightgbm.Booster(model_str=wrong)
    scores = trees.predict(table)
    assert np.isfinite(scores).all(), word
    assert (CompiledTrees.from_text(wrong).score(table) == scores).all(), word
    assert np.isfinite(trees.predict(table, pred_contrib=True)).all(), word
print(accepted)
"""


def test_accepted_text_scores_finitely(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trees.txt"
    path.write_text(text)
    command = [sys.executable, "-c", CHANGED_AT_RANDOM, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-300:]
    assert 10 < int(done.stdout) < 290
