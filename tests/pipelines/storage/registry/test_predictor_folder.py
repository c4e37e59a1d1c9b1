"""Content of a predictor folder after the saving process was killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.models.prediction.test_predictor import FACTS

from forewarn.features.prediction.buckets import Buckets
from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.feature_extractor import FeatureExtractor
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.model_inputs import InputColumns
from forewarn.features.records.record_table import HOUR, FeatureKinds
from forewarn.features.time_units import Nanoseconds, RecordCount
from forewarn.models.prediction.baselines import RandomModel
from forewarn.models.prediction.calibration import Calibration
from forewarn.models.prediction.ensembles import Committee
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.storage.registry.predictor_folder import save_predictor


def predictor_of(seed: int) -> Predictor:
    """Return a predictor whose models are a few bytes."""
    model = RandomModel(seed=seed)
    model.last_end_ = seed
    buckets = Buckets((np.array([50.0], np.float32),))
    plan = FeaturePlan(FeatureKinds(float=("temperature_gpu",)), RecordCount(4), Nanoseconds(HOUR))
    encoder = Encoder(
        FeatureExtractor(plan), buckets, Buckets(()), InputColumns(("temperature_gpu",), ())
    )
    committee = Committee(("random",), (("random", 0.1),))
    return Predictor(encoder, {"random": model}, committee, Calibration(1.0, 0.0), "random", FACTS)


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_save_replaces_only_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_predictor(predictor_of(1), folder)
    (old,) = folder.glob("models-*")
    for name in ("notes/why.txt", "random/mine.json", ".hidden/a", "models-mine/b", "README"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")
    fake = folder / f"models-{'0' * 16}"
    fake.mkdir()
    (fake / "c").write_text("mine")
    before = names_in(folder)
    save_predictor(predictor_of(2), folder)
    (new,) = {path.name for path in folder.glob("models-*")} - {old.name, "models-mine", fake.name}
    gone, come = before - names_in(folder), names_in(folder) - before
    assert gone == {f"{old.name}/random/parameters.json"}
    assert come == {f"{new}/random/parameters.json"}
    assert Predictor.load(folder).version == predictor_of(2).version


def test_damaged_predictor_is_replaced(tmp_path: Path) -> None:
    for _ in range(2):
        save_predictor(predictor_of(1), tmp_path)
        assert Predictor.load(tmp_path).version == predictor_of(1).version
        (path,) = tmp_path.glob("models-*/random/parameters.json")
        path.write_text("{}")
        with pytest.raises(ValueError, match="is damaged"):
            Predictor.load(tmp_path)


def test_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: RandomModel, folder: Path) -> None:
        (folder / "parameters.json").write_text("{")
        raise OSError(28, "No space left on device")

    there = tmp_path / "there"
    save_predictor(predictor_of(1), there)
    before = names_in(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(RandomModel, "save", full)
        for folder in (there, tmp_path / "new" / "model"):
            with pytest.raises(OSError, match="No space"):
                save_predictor(predictor_of(2), folder)
    assert names_in(tmp_path) == before
    assert not (tmp_path / "new").exists()


# Forked while no other thread runs; the child is killed at its n-th file operation.
KILLED = """
import json, os, shutil, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_predictor_folder import predictor_of, save_predictor, Predictor
base, begins_with = Path(sys.argv[2]), sys.argv[3]
old, new = predictor_of(1), predictor_of(2)
names = old.version, new.version
seen, steps = [], {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "fcntl.flock"}
def version(folder):
    try:
        return Predictor.load(folder).version
    except ValueError:
        return "none"
for n in range(1, 200):
    folder = base / str(n) / "model"
    if begins_with == "old":
        save_predictor(old, folder)
        (folder / "mine").mkdir()
    child = os.fork()
    if not child:
        left = n
        def hook(event, arguments):
            global left
            if event in steps and str(base) in str(arguments[0]) or event == "fcntl.flock":
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        save_predictor(new, folder)
        os._exit(0)
    ended = os.waitpid(child, 0)[1]
    found = version(folder)
    save_predictor(new, folder)
    left = sorted(path.name for path in folder.iterdir())
    seen.append([ended, names.index(found) if found in names else found, version(folder), left])
    if not ended:
        break
print(json.dumps(seen))
"""


@pytest.mark.parametrize("begins_with", ["old", "nothing"])
def test_kill_keeps_complete_predictor(tmp_path: Path, begins_with: str) -> None:
    command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(tmp_path), begins_with]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-1000:]
    steps = json.loads(done.stdout)
    found = [one for _, one, _, _ in steps]
    before = 0 if begins_with == "old" else "none"
    swapped = found.index(1)
    assert found == [before] * swapped + [1] * (len(found) - swapped)
    assert swapped > 5
    assert [ended for ended, *_ in steps] == [9] * (len(steps) - 1) + [0]
    assert {version for *_, version, _ in steps} == {predictor_of(2).version}
    # The user's own folder, the new models and their index; no files of killed processes.
    lists = [[name for name in left if not name.startswith("models-")] for *_, left in steps]
    assert lists == [(["mine"] if begins_with == "old" else []) + ["predictor.json"]] * len(steps)
    assert {len(left) - len(named) for (*_, left), named in zip(steps, lists, strict=True)} == {1}
