from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forewarn.features.buckets import Buckets
from forewarn.features.encoder import Encoder
from forewarn.features.inputs import InstanceValues
from forewarn.features.measures import Measures, Plan
from forewarn.features.records import FeatureKinds
from forewarn.models.calibration import Calibration
from forewarn.models.committee import CASCADE_FIRST, Committee
from forewarn.models.gbdt import GbdtModel
from forewarn.models.predictor import Predictor

HOUR = 3_600_000_000_000
LENGTH = 4
PLAN = Plan(
    kinds=FeatureKinds(categorical=("gpu_type",), float=("temperature_gpu",), counter=("ecc",)),
    length=LENGTH,
    interval=HOUR,
)
CONTEXT = ("category:gpu_type=A100", "category:gpu_type=H100")


def values_of(n: int, seed: int) -> InstanceValues:
    rng = np.random.default_rng(seed)
    sequence = rng.normal(60, 5, (n, LENGTH, 2)).astype(np.float32)
    sequence[rng.random(sequence.shape) < 0.05] = np.nan
    kind = rng.integers(0, 2, n)
    context = np.stack([kind == 0, kind == 1], axis=1).astype(np.float32)
    return InstanceValues(sequence, context, ("temperature_gpu", "ecc"), CONTEXT)


def labels_of(values: InstanceValues) -> np.ndarray[Any, np.dtype[np.int8]]:
    return np.asarray(np.nan_to_num(values.sequence[:, -1, 0]) > 64, dtype=np.int8)


def fitted(encoder: Encoder, values: InstanceValues, weight: float) -> GbdtModel:
    n = len(values)
    model = GbdtModel(seed=0, positive_weight=weight)
    weights, ends = np.ones(n, dtype=np.float32), np.arange(n, dtype=np.int64)
    return model.fit(encoder.encode(values), labels_of(values), weights, ends)


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    values = values_of(300, seed=0)
    buckets = Buckets.fit(values.sequence), Buckets.fit(values.context)
    encoder = Encoder(Measures(PLAN, {"gpu_type": ("A100", "H100")}), *buckets)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("forewarn.models.trees._TREES", 15)
        models = {
            "gbdt": fitted(encoder, values, 1.0),
            CASCADE_FIRST: fitted(encoder, values, 10.0),
        }
    return Predictor(
        encoder=encoder,
        models=dict(models),
        committee=Committee(("gbdt",), ((CASCADE_FIRST, 0.05), ("gbdt", 0.02))),
        calibration=Calibration(0.9, -4.0),
        cascade_model="gbdt",
        facts={"trained_at": "2025-01-19T06:00:00Z", "step": 7_200_000_000_000, "share": 0.003},
    )


@pytest.fixture
def folder(predictor: Predictor, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    predictor.save(folder)
    return folder


def test_loaded_gives_the_same_scores(predictor: Predictor, folder: Path) -> None:
    values = values_of(50, seed=1)
    before, after = predictor.scores(values), Predictor.load(folder).scores(values)
    assert set(before) == {"gbdt", CASCADE_FIRST, "blend"}
    assert before.keys() == after.keys()
    for name, scores in before.items():
        assert np.array_equal(scores, after[name])
        assert len(set(scores.tolist())) > 5
    assert not np.array_equal(before["gbdt"], before[CASCADE_FIRST])


def test_loaded_is_the_same_in_everything_else(predictor: Predictor, folder: Path) -> None:
    loaded = Predictor.load(folder)
    assert loaded.committee == predictor.committee
    assert loaded.calibration == predictor.calibration
    assert loaded.cascade_model == predictor.cascade_model
    assert loaded.facts == predictor.facts
    assert loaded.encoder.measures == predictor.encoder.measures
    assert loaded.version == predictor.version


def test_blend_is_of_the_parallel_members(predictor: Predictor) -> None:
    values = values_of(20, seed=2)
    scores = predictor.scores(values)
    assert scores["blend"] == pytest.approx(scores["gbdt"])
    two = replace(predictor, committee=Committee(("gbdt", CASCADE_FIRST), ((CASCADE_FIRST, 0.1),)))
    odds = [np.log(scores[name] / (1 - scores[name])) for name in ("gbdt", CASCADE_FIRST)]
    assert two.scores(values)["blend"] == pytest.approx(1 / (1 + np.exp(-np.mean(odds, axis=0))))


def test_saved_twice_gives_the_same_files(folder: Path) -> None:
    other = folder.parent / "other"
    other.mkdir()
    Predictor.load(folder).save(other)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert len(files) > 3
    for path in files:
        assert (folder / path).read_bytes() == (other / path).read_bytes()


def test_no_file_is_a_pickle(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            assert path.suffix in {".json", ".txt"}
            path.read_text(encoding="utf-8")


# --- versions ----------------------------------------------------------------------------------


def test_version_begins_with_the_day_of_training(predictor: Predictor) -> None:
    day, digest = predictor.version.rsplit("-", 1)
    assert day == "2025-01-19"
    assert len(digest) == 8


def test_version_does_not_depend_on_the_place(predictor: Predictor, folder: Path) -> None:
    moved = folder.parent / "elsewhere"
    shutil.move(folder, moved)
    assert Predictor.load(moved).version == predictor.version


@pytest.mark.parametrize(
    "change",
    [
        {"calibration": Calibration(0.9, -4.1)},
        {"committee": Committee(("gbdt",), ((CASCADE_FIRST, 0.05),))},
        {"cascade_model": "mlp"},
        {"facts": {"trained_at": "2025-01-19T06:00:00Z", "step": 1, "share": 0.003}},
    ],
    ids=lambda change: str(next(iter(change))),
)
def test_version_changes_with_what_is_described(
    predictor: Predictor, change: dict[str, Any]
) -> None:
    assert replace(predictor, **change).version != predictor.version


def test_version_changes_with_the_encoder(predictor: Predictor) -> None:
    edges = Buckets((np.array([50.0], np.float32), np.array([55.0], np.float32)))
    changed = replace(predictor.encoder, sequence=edges)
    assert replace(predictor, encoder=changed).version != predictor.version


def test_version_changes_with_what_the_models_learned(predictor: Predictor) -> None:
    # The same records and settings but for the weight of positives: the scores are others.
    models = {"gbdt": predictor.models[CASCADE_FIRST], CASCADE_FIRST: predictor.models["gbdt"]}
    other = replace(predictor, models=models)
    values = values_of(20, seed=3)
    assert not np.array_equal(other.scores(values)["gbdt"], predictor.scores(values)["gbdt"])
    assert other.version != predictor.version


# --- what is no predictor ----------------------------------------------------------------------


def test_a_folder_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ValueError, match=f"{path}: holds no `predictor.json`"):
            Predictor.load(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"format": 1}', "3", '"x"'])
def test_a_broken_description_is_refused_by_name(folder: Path, text: str) -> None:
    (folder / "predictor.json").write_text(text)
    with pytest.raises(ValueError, match=f"{folder / 'predictor.json'}: is no whole predictor"):
        Predictor.load(folder)


def test_bytes_that_are_no_text_are_refused_by_name(folder: Path) -> None:
    (folder / "predictor.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=f"{folder / 'predictor.json'}: is no whole predictor"):
        Predictor.load(folder)


@pytest.mark.parametrize("left_out", ["encoder", "models", "parallel", "calibration", "facts"])
def test_a_description_that_lacks_something_is_refused_by_name(folder: Path, left_out: str) -> None:
    saved = json.loads((folder / "predictor.json").read_text())
    del saved[left_out]
    (folder / "predictor.json").write_text(json.dumps(saved))
    with pytest.raises(ValueError, match=f"predictor.json: is no whole predictor.*{left_out}"):
        Predictor.load(folder)


def test_another_format_is_refused_with_what_was_expected(folder: Path) -> None:
    saved = json.loads((folder / "predictor.json").read_text())
    (folder / "predictor.json").write_text(json.dumps(saved | {"format": 99}))
    with pytest.raises(ValueError, match=r"predictor.json: format is 99, expected 1"):
        Predictor.load(folder)


@pytest.mark.parametrize("damage", ["removed", "empty"])
@pytest.mark.parametrize("file", ["trees.txt", "parameters.json"])
def test_a_damaged_model_is_refused_by_name(folder: Path, file: str, damage: str) -> None:
    path = folder / "gbdt" / file
    if damage == "removed":
        path.unlink()
    else:
        path.write_text("")
    with pytest.raises((ValueError, OSError), match=str(folder)):
        Predictor.load(folder)


LOAD = """
import sys
from pathlib import Path
from forewarn.models.predictor import Predictor
try:
    Predictor.load(Path(sys.argv[1]))
except ValueError as error:
    print(f"refused: {error}")
"""


def test_a_model_that_was_copied_by_half_is_refused_by_name(folder: Path) -> None:
    # In a process of its own: LightGBM aborts the process on a text that ends too early.
    path = folder / "gbdt" / "trees.txt"
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr.splitlines()[:1]
    assert done.stdout.startswith("refused: ")
    assert str(folder) in done.stdout
