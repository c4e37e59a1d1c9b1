from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forewarn.features.errors import InputError
from forewarn.features.prediction.buckets import Buckets
from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.feature_extractor import FeatureExtractor
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.model_inputs import InstanceValues
from forewarn.features.records.record_table import FeatureKinds
from forewarn.features.time_units import DAY, HOUR, RecordCount
from forewarn.models.prediction.calibration import Calibration
from forewarn.models.prediction.ensembles import CASCADE_FIRST, Committee
from forewarn.models.prediction.model_catalogue import ModelCatalogue, PluginModel
from forewarn.models.prediction.predictor import Predictor, PredictorFacts
from forewarn.models.prediction.predictor_files import (
    PredictorError,
    content_digest,
    digests_in,
    models_folder,
)
from forewarn.models.prediction.trees.gbdt import GbdtModel

LENGTH = 4
PLAN = FeaturePlan(
    kinds=FeatureKinds(categorical=("gpu_type",), float=("temperature_gpu",), counter=("ecc",)),
    window_records=RecordCount(LENGTH),
    interval=HOUR,
)
CONTEXT = ("category:gpu_type=A100", "category:gpu_type=H100")


FACTS = PredictorFacts(
    trained_at="2025-01-19T06:00:00Z",
    train_length_days=9.0,
    days_of_records=20.0,
    calibrated_on=("2025-01-16T00:00:00Z",),
    prevalence=0.01,
    failures_known=7,
    interval=600_000_000_000,
    step=7_200_000_000_000,
    horizon=DAY,
    k=0.02,
    share=0.003,
    seed=0,
)


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
    encoder = Encoder(
        FeatureExtractor(PLAN, {"gpu_type": ("A100", "H100")}), *buckets, values.columns
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("forewarn.models.prediction.trees.tree_model._N_TREES", 15)
        models = {
            "gbdt": fitted(encoder, values, 1.0),
            CASCADE_FIRST: fitted(encoder, values, 10.0),
        }
    return Predictor(
        encoder=encoder,
        models=dict(models),
        committee=Committee(("gbdt",), ((CASCADE_FIRST, 0.05), ("gbdt", 0.02)), 0.5),
        calibration=Calibration(0.9, -4.0),
        cascade_model="gbdt",
        facts=FACTS,
    )


@pytest.fixture
def folder(predictor: Predictor, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    predictor.save(folder)
    return folder


def description_of(folder: Path) -> dict[str, Any]:
    """Return `predictor.json` without its digest."""
    saved: dict[str, Any] = json.loads((folder / "predictor.json").read_text())
    del saved["digest"]
    return saved


def describe(folder: Path, saved: dict[str, Any]) -> None:
    """Write `predictor.json` with the matching digest."""
    described = saved | {"digest": content_digest(saved)}
    (folder / "predictor.json").write_text(json.dumps(described))


def test_loaded_predictor_gives_same_scores(predictor: Predictor, folder: Path) -> None:
    values = values_of(50, seed=1)
    before, after = predictor.scores(values), Predictor.load(folder).scores(values)
    assert set(before) == {"gbdt", CASCADE_FIRST, "rules", "blend"}
    assert before.keys() == after.keys()
    for name, scores in before.items():
        assert np.array_equal(scores, after[name])
        assert name == "rules" or len(set(scores.tolist())) > 5
    assert not np.array_equal(before["gbdt"], before[CASCADE_FIRST])


def test_loaded_predictor_is_equal(predictor: Predictor, folder: Path) -> None:
    loaded = Predictor.load(folder)
    assert loaded.committee == predictor.committee
    assert loaded.calibration == predictor.calibration
    assert loaded.cascade_model == predictor.cascade_model
    assert loaded.facts == predictor.facts
    assert loaded.encoder.measures == predictor.encoder.measures
    assert loaded.version == predictor.version


def test_blend_uses_parallel_members_and_rules(predictor: Predictor) -> None:
    values = values_of(20, seed=2)
    scores = predictor.scores(values)
    assert np.array_equal(scores["blend"], predictor.committee.blend(scores))
    assert (scores["blend"] > scores["gbdt"]).any()
    alone = replace(predictor, committee=replace(predictor.committee, rules=0.0))
    assert alone.scores(values)["blend"] == pytest.approx(scores["gbdt"])
    two = replace(predictor, committee=Committee(("gbdt", CASCADE_FIRST), ((CASCADE_FIRST, 0.1),)))
    odds = [np.log(scores[name] / (1 - scores[name])) for name in ("gbdt", CASCADE_FIRST)]
    assert two.scores(values)["blend"] == pytest.approx(1 / (1 + np.exp(-np.mean(odds, axis=0))))


def test_saving_is_deterministic(folder: Path) -> None:
    other = folder.parent / "other"
    other.mkdir()
    Predictor.load(folder).save(other)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert len(files) > 3
    for path in files:
        assert (folder / path).read_bytes() == (other / path).read_bytes()


def test_no_file_is_pickle(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            assert path.suffix in {".json", ".txt"}
            path.read_text(encoding="utf-8")


# --- versions ----------------------------------------------------------------------------------


def test_version_starts_with_training_date(predictor: Predictor) -> None:
    day, digest = predictor.version.rsplit("-", 1)
    assert day == "2025-01-19"
    assert len(digest) == 8


def test_version_is_independent_of_path(predictor: Predictor, folder: Path) -> None:
    moved = folder.parent / "elsewhere"
    shutil.move(folder, moved)
    assert Predictor.load(moved).version == predictor.version


@pytest.mark.parametrize(
    "change",
    [
        {"calibration": Calibration(0.9, -4.1)},
        {"committee": Committee(("gbdt",), ((CASCADE_FIRST, 0.05),))},
        {"cascade_model": "mlp"},
        {"facts": replace(FACTS, step=1)},
    ],
    ids=lambda change: str(next(iter(change))),
)
def test_version_changes_with_description(predictor: Predictor, change: dict[str, Any]) -> None:
    assert replace(predictor, **change).version != predictor.version


def test_version_changes_with_encoder(predictor: Predictor) -> None:
    edges = Buckets((np.array([50.0], np.float32), np.array([55.0], np.float32)))
    changed = replace(predictor.encoder, sequence=edges)
    assert replace(predictor, encoder=changed).version != predictor.version


def test_version_changes_with_models(predictor: Predictor) -> None:
    # The same records and settings except the weight of positives: the scores differ.
    models = {"gbdt": predictor.models[CASCADE_FIRST], CASCADE_FIRST: predictor.models["gbdt"]}
    other = replace(predictor, models=models)
    values = values_of(20, seed=3)
    assert not np.array_equal(other.scores(values)["gbdt"], predictor.scores(values)["gbdt"])
    assert other.version != predictor.version


# --- invalid predictors --------------------------------------------------------------------------


def test_invalid_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ValueError, match=f"{path}: has no `predictor.json`"):
            Predictor.load(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"format": 3}', "3", '"x"'])
def test_broken_description_is_refused(folder: Path, text: str) -> None:
    (folder / "predictor.json").write_text(text)
    path = folder / "predictor.json"
    with pytest.raises(ValueError, match=f"{path}: is (damaged|not a complete predictor)"):
        Predictor.load(folder)


def test_binary_description_is_refused(folder: Path) -> None:
    (folder / "predictor.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(
        ValueError, match=f"{folder / 'predictor.json'}: is not a complete predictor"
    ):
        Predictor.load(folder)


@pytest.mark.parametrize("left_out", ["encoder", "models", "parallel", "calibration", "facts"])
def test_incomplete_description_is_refused(folder: Path, left_out: str) -> None:
    saved = description_of(folder)
    del saved[left_out]
    describe(folder, saved)
    with pytest.raises(
        ValueError, match=f"predictor.json: is not a complete predictor.*{left_out}"
    ):
        Predictor.load(folder)


def test_other_format_is_refused(folder: Path) -> None:
    describe(folder, description_of(folder) | {"format": 99})
    with pytest.raises(ValueError, match=r"predictor.json: format is 99, expected 3"):
        Predictor.load(folder)


def test_old_format_asks_for_retraining(
    folder: Path,
) -> None:
    describe(folder, description_of(folder) | {"format": 1})
    with pytest.raises(ValueError, match=r"predictor.json: format is 1, expected 3.*train again"):
        Predictor.load(folder)


def test_modified_description_is_refused(folder: Path) -> None:
    path = folder / "predictor.json"
    text = path.read_text()
    assert '"share": 0.003' in text
    path.write_text(text.replace('"share": 0.003', '"share": 0.03'))
    with pytest.raises(ValueError, match=f"{path}: is damaged .*its digest"):
        Predictor.load(folder)


@pytest.mark.parametrize("part", ["slope", "edge", "knot"])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_nonfinite_numbers_are_refused(folder: Path, part: str, number: str) -> None:
    # As another program would write such a predictor: with matching digests.
    saved, wrong = description_of(folder), "a number that is none"
    if part == "slope":
        saved["calibration"]["slope"] = wrong
    elif part == "edge":
        saved["encoder"]["sequence_edges"][0][0] = wrong
    else:
        fit = {"knots": [0.0, wrong], "weights": [0.0, 0.0], "offsets": []}
        saved["encoder"]["measures"]["residuals"] = [fit]
    describe(folder, saved)
    path = folder / "predictor.json"
    path.write_text(path.read_text().replace(f'"{wrong}"', number))
    with pytest.raises(ValueError, match=f"{path}: is not a complete predictor .*finite"):
        Predictor.load(folder)


@pytest.mark.parametrize("file", ["gbdt/trees.txt", "cascade_first/parameters.json"])
def test_modified_file_is_refused(folder: Path, file: str) -> None:
    (models,) = folder.glob("models-*")
    path = models / file
    content = path.read_bytes()
    path.write_bytes(content.replace(b"3", b"4", 1))
    assert path.read_bytes() != content
    with pytest.raises(ValueError, match=f"{path}: is damaged or from another model"):
        Predictor.load(folder)


def test_invalid_trees_are_refused_despite_digest(folder: Path) -> None:
    (models,) = folder.glob("models-*")
    path = models / "gbdt" / "trees.txt"
    wrong = re.sub(
        r"(?<=leaf_value=)\S+", lambda leaf: "1e".ljust(len(leaf[0]), "9"), path.read_text()
    )
    path.write_text(wrong)
    saved = description_of(folder)
    saved["files"] = digests_in(models)
    describe(folder, saved)
    models.rename(folder / models_folder(saved["files"]))
    with pytest.raises(ValueError, match=r"gbdt: cannot be loaded as gbdt .*`leaf_value` holds"):
        Predictor.load(folder)


def test_other_columns_are_refused(folder: Path) -> None:
    values = values_of(5, seed=1)
    others = replace(values, context_names=CONTEXT[::-1])
    with pytest.raises(InputError, match="column 0 of the context is `category:gpu_type=H100`"):
        Predictor.load(folder).scores(others)
    fewer = replace(values, sequence=values.sequence[..., :1], sequence_names=("temperature_gpu",))
    with pytest.raises(InputError, match="column 1 of the sequence is `nothing`, expected `ecc`"):
        Predictor.load(folder).scores(fewer)


@pytest.mark.parametrize("damage", ["removed", "empty"])
@pytest.mark.parametrize("file", ["trees.txt", "parameters.json"])
def test_damaged_model_is_refused(folder: Path, file: str, damage: str) -> None:
    (path,) = folder.glob(f"models-*/gbdt/{file}")
    if damage == "removed":
        path.unlink()
    else:
        path.write_text("")
    with pytest.raises((ValueError, OSError), match=str(folder)):
        Predictor.load(folder)


LOAD = """
import sys
from pathlib import Path
from forewarn.models.prediction.predictor import Predictor
try:
    Predictor.load(Path(sys.argv[1]))
except ValueError as error:
    print(f"refused: {error}")
"""


def test_partial_copy_is_refused(folder: Path) -> None:
    # In a separate process: LightGBM aborts the process if the text ends too early.
    (path,) = folder.glob("models-*/gbdt/trees.txt")
    text = path.read_text()
    path.write_text(text[: len(text) // 2])
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr.splitlines()[:1]
    assert done.stdout.startswith("refused: ")
    assert str(folder) in done.stdout


# --- plug-in models ----------------------------------------------------------------------------


def plugin(package: str = "site-models", version: str = "1.2") -> ModelCatalogue:
    return ModelCatalogue({"site": PluginModel(package, version, lambda: GbdtModel)})


@pytest.fixture
def plugin_folder(predictor: Predictor, tmp_path: Path) -> Path:
    """Return a predictor whose model comes from another package."""
    models = {"site": predictor.models["gbdt"], CASCADE_FIRST: predictor.models[CASCADE_FIRST]}
    committee = Committee(("site",), ((CASCADE_FIRST, 0.05),))
    packages = plugin().packages(["site"])
    of_site = replace(
        predictor, models=models, committee=committee, cascade_model="site", packages=packages
    )
    of_site.save(tmp_path)
    return tmp_path


def test_predictor_records_package_of_plugin(plugin_folder: Path) -> None:
    assert description_of(plugin_folder)["packages"] == {"site": "site-models 1.2"}
    loaded = Predictor.load(plugin_folder, plugin())
    assert loaded.packages == {"site": "site-models 1.2"}
    assert np.isfinite(loaded.scores(values_of(5, seed=3))["blend"]).all()


@pytest.mark.parametrize(
    ("catalogue", "expected"),
    [
        (ModelCatalogue(), "model `site` needs the package site-models 1.2, expected it installed"),
        (plugin(version="1.3"), "was trained by site-models 1.2, found site-models 1.3"),
        (plugin("other-models"), "was trained by site-models 1.2, found other-models 1.2"),
    ],
)
def test_other_package_of_plugin_is_refused(
    plugin_folder: Path, catalogue: ModelCatalogue, expected: str
) -> None:
    with pytest.raises(PredictorError, match=re.escape(expected)) as caught:
        Predictor.load(plugin_folder, catalogue)
    assert "\n" not in str(caught.value)


def test_version_changes_with_package(predictor: Predictor) -> None:
    assert replace(predictor, packages={"site": "site-models 2"}).version != predictor.version


def test_facts_hold_hyperparameters(predictor: Predictor, tmp_path: Path) -> None:
    facts = replace(FACTS, hyperparameters={"gbdt": {"num_leaves": 15}})
    replace(predictor, facts=facts).save(tmp_path)
    assert Predictor.load(tmp_path).facts == facts
