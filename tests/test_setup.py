from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Commands that the script and the fake may call; with this PATH the only Python is the fake.
TOOLS = [
    "awk",
    "basename",
    "cat",
    "chmod",
    "cksum",
    "cp",
    "dirname",
    "grep",
    "head",
    "mkdir",
    "rm",
    "sed",
    "sh",
    "tr",
]
LOCK = """\
numpy==2.0 \\
    --hash=sha256:00
uv==1.0 \\
    --hash=sha256:11
    # via forewarn
wheel==3.0 \\
    --hash=sha256:22
"""

# Fake of Python, and of the Python in the environment that it creates. It logs what is installed,
# and fails if a file named `broken-...` exists next to the log.
FAKE_PYTHON = """\
#!/bin/sh
case "$1 $2" in
    "-c "*) echo "{version}" ;;
    "-m venv")
        mkdir -p "$3/bin"
        echo "command = python -m venv $3" >"$3/pyvenv.cfg"
        cp "$0" "$3/bin/python"
        ;;
    "-m pip")
        for last; do :; done
        echo "pip $(basename "$last")" >>"{log}"
        [ ! -e "{log}.broken-$(basename "$last")" ] || exit 1
        if [ "$(basename "$last")" = uv.txt ]; then
            printf '#!/bin/sh\\n[ "$1" = --version ] || echo "uv $2" >>"{log}"\\n' >"${{0%/*}}/uv"
            chmod +x "${{0%/*}}/uv"
        fi
        ;;
esac
"""
FULL_INSTALL = ["pip uv.txt", "uv sync", "pip ."]


class Checkout:
    """Folder with the setup script, a tiny lock, and a PATH with a fake Python."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self.log = folder / "log"
        self.bin = folder / "bin"
        (self.root / ".ci").mkdir(parents=True)
        shutil.copy(ROOT / ".ci" / "setup", self.root / ".ci" / "setup")
        (self.root / "requirements.lock").write_text(LOCK)
        (self.root / "pyproject.toml").write_text("")
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or "")

    def add_python(self, name: str, version: str) -> None:
        path = self.bin / name
        path.write_text(FAKE_PYTHON.format(version=version, log=self.log))
        path.chmod(0o755)

    def setup(self, python: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", self.root / ".ci" / "setup"],
            env={"PATH": str(self.bin), "PYTHON": python},
            capture_output=True,
            text=True,
        )

    def installed(self) -> list[str]:
        """Return what was installed since the last call."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines

    def break_install(self, of: str) -> Path:
        mark = Path(f"{self.log}.broken-{of}")
        mark.touch()
        return mark


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    checkout = Checkout(tmp_path)
    checkout.add_python("python3.11", "3.11")
    return checkout


def test_second_run_installs_nothing(checkout: Checkout) -> None:
    assert checkout.setup().returncode == 0
    assert checkout.installed() == FULL_INSTALL
    run = checkout.setup()
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert checkout.installed() == []


@pytest.mark.parametrize("file", ["requirements.lock", "pyproject.toml"])
def test_change_is_installed_into_same_environment(checkout: Checkout, file: str) -> None:
    checkout.setup()
    checkout.installed()
    kept = checkout.root / ".venv" / "kept"
    kept.touch()
    with (checkout.root / file).open("a") as stream:
        stream.write("# changed\n")
    assert checkout.setup().returncode == 0
    assert checkout.installed() == ["uv sync", "pip ."]
    assert kept.exists()


def test_interrupted_setup_starts_over(checkout: Checkout) -> None:
    mark = checkout.break_install(of=".")
    assert checkout.setup().returncode != 0
    left = checkout.root / ".venv" / "left"
    left.touch()
    checkout.installed()
    mark.unlink()
    assert checkout.setup().returncode == 0
    assert checkout.installed() == FULL_INSTALL
    assert not left.exists()


def test_moved_checkout_gets_new_environment(checkout: Checkout) -> None:
    checkout.setup()
    checkout.installed()
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    assert checkout.setup().returncode == 0
    assert checkout.installed() == FULL_INSTALL


def test_pip_is_used_without_uv(checkout: Checkout) -> None:
    checkout.break_install(of="uv.txt")
    run = checkout.setup()
    assert run.returncode == 0
    assert "installing with pip" in run.stderr
    assert checkout.installed() == ["pip uv.txt", "pip rest.txt", "pip ."]
    venv = checkout.root / ".venv"
    assert (venv / "rest.txt").read_text() == LOCK.replace((venv / "uv.txt").read_text(), "")
    assert checkout.setup().returncode == 0
    assert checkout.installed() == []


def test_other_python_can_be_chosen(checkout: Checkout) -> None:
    checkout.setup()
    checkout.installed()
    checkout.add_python("python-of-mine", "3.12")
    assert checkout.setup(python="python-of-mine").returncode == 0
    assert checkout.installed() == FULL_INSTALL
    assert checkout.setup(python="python-of-mine").returncode == 0
    assert checkout.setup().returncode == 0
    assert checkout.installed() == []


def test_python_without_venv_is_skipped(checkout: Checkout) -> None:
    checkout.add_python("python3.11", "3.11 no-venv")
    checkout.add_python("python3.12", "3.12")
    run = checkout.setup()
    assert run.returncode == 0
    assert "python3.12" in run.stderr


@pytest.mark.parametrize(
    ("version", "python", "advice"),
    [
        (None, "", "apt-get install python3-venv"),
        ("3.11 no-venv", "", "apt-get install python3.11-venv"),
        (None, "python9", "PYTHON=python9"),
    ],
)
def test_error_names_missing_tool(
    checkout: Checkout, version: str | None, python: str, advice: str
) -> None:
    (checkout.bin / "python3.11").unlink()
    if version:
        checkout.add_python("python3.11", version)
    run = checkout.setup(python)
    assert run.returncode != 0
    assert run.stderr.count("\n") == 1
    assert advice in run.stderr
    assert not (checkout.root / ".venv").exists()


def test_unusable_choice_keeps_environment(checkout: Checkout) -> None:
    checkout.setup()
    checkout.installed()
    assert checkout.setup(python="python9").returncode != 0
    assert checkout.setup().returncode == 0
    assert checkout.installed() == []
