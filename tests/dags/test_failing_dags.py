"""What becomes of runs that fail, in Airflow without its scheduler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

DAGS = Path(__file__).parents[2] / "dags"
SCRIPT = Path(__file__).with_name("failing_dags.py")
FIRST_TASKS = {
    "forewarn_backtest": "backtest",
    "forewarn_compact": "compact",
    "forewarn_ingest": "ingest",
    "forewarn_inspect": "inspect",
    "forewarn_respond": "respond",
    "forewarn_retrain": "lengths",
    "forewarn_review": "review",
    "forewarn_score": "score",
}


@pytest.fixture(scope="module")
def webhook() -> Any:
    """Receive alerts as JSON."""
    received: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/secret-path", received
        server.shutdown()


@pytest.fixture(scope="module")
def results(
    webhook: Any, free_port: Callable[[], int], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("failing")
    (folder / "records").mkdir()
    broken, unreachable = folder / "broken.toml", folder / "unreachable.toml"
    out = folder / "results.json"
    broken.write_text("unknown = 1\n")
    server = f"http://127.0.0.1:{free_port()}"
    unreachable.write_text(f'[site]\nrecords = "records"\nprometheus = "{server}"\n')
    named = {"AIRFLOW_HOME": str(folder / "airflow"), "FOREWARN_ALERT_URL": webhook[0]}
    named |= {"AIRFLOW__CORE__DAGS_FOLDER": str(DAGS), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    named |= {"AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), *map(str, (DAGS, broken, unreachable, out))],
        env=os.environ | named,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(out.read_text())
    return read


def test_invalid_input_fails_at_once(results: dict[str, Any]) -> None:
    assert {dag: results[dag]["state"] for dag in FIRST_TASKS} == dict.fromkeys(
        FIRST_TASKS, "failed"
    )
    for dag, task in FIRST_TASKS.items():
        assert results[dag]["tasks"][task] == ["failed", 1], dag


def test_service_without_answer_is_retried(results: dict[str, Any]) -> None:
    assert results["unreachable"]["tasks"]["ingest"] == ["failed", 2]


def test_refused_champion_skips_promotion(results: dict[str, Any]) -> None:
    assert results["refused"]["state"] == "success"
    assert results["refused"]["tasks"]["promote"] == ["skipped", 1]


def test_misspelt_field_fails_at_once(results: dict[str, Any]) -> None:
    assert results["misspelt"]["tasks"]["lengths"] == ["failed", 1]


@pytest.mark.usefixtures("results")
def test_each_failed_task_sends_alert(webhook: Any) -> None:
    received = webhook[1]
    assert len(received) == len(FIRST_TASKS) + 2
    assert {(sent["dag"], sent["task"]) for sent in received} == set(FIRST_TASKS.items())
    assert {sent["alert"] for sent in received} == {
        *("no backtest", "no compaction", "no list", "no records"),
        *("no response", "no retraining", "no review", "no inspection plan"),
    }
    for sent in received:
        assert sent["run"].startswith("manual__")
    reasons = [sent["text"].split(" failed: ", 1)[1] for sent in received]
    assert sum("unknown key" in reason for reason in reasons) == len(FIRST_TASKS)
    assert sum("cannot be reached" in reason for reason in reasons) == 1
    assert "unknown field `day` of the run, expected `at`." in reasons
