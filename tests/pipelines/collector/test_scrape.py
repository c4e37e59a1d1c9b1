"""A real Prometheus scrapes a real collector, with the alert rules loaded."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.pipelines.collector.test_request_limits import Running, collector

__all__ = ["collector"]

RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "forewarn.rules.yml"


@pytest.fixture
def prometheus(
    collector: Running,
    require_program: Callable[[str, str], Path],
    free_port: Callable[[], int],
    tmp_path: Path,
) -> Iterator[str]:
    """Return the address of a server that scrapes the collector every second."""
    program = str(require_program("prometheus", "prometheus"))
    job = {
        "job_name": "forewarn",
        "scrape_interval": "1s",
        "static_configs": [{"targets": [f"127.0.0.1:{collector.port}"]}],
    }
    config = tmp_path / "prometheus.yml"
    config.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "scrape_configs": [job]}))
    address = f"127.0.0.1:{free_port()}"
    options = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [program, *options, f"--web.listen-address={address}"], stdout=log, stderr=log
        )
        try:
            yield f"http://{address}"
        finally:
            server.terminate()
            server.wait(60)


def ask(address: str, path: str, **params: str) -> Any:
    """Return an answer of the API; None while the server starts."""
    try:
        answer = httpx.get(f"{address}/api/v1/{path}", params=params, trust_env=False)
    except httpx.TransportError:
        return None
    return answer.json()["data"] if answer.status_code == 200 else None


def test_prometheus_stores_every_collector_metric(prometheus: str, collector: Running) -> None:
    assert collector.takes_a_batch()
    deadline = time.monotonic() + 60
    query = '{__name__=~"forewarn_.*"}'
    while not ((data := ask(prometheus, "query", query=query)) and data["result"]):
        assert time.monotonic() < deadline, "nothing was scraped within a minute"
        time.sleep(0.2)
    names = {series["metric"]["__name__"] for series in data["result"]}
    assert {"forewarn_collector_rows_total", "forewarn_collector_inbox_files"} <= names
    (target,) = ask(prometheus, "targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    metadata = ask(prometheus, "metadata", metric="forewarn_collector_landing_age_seconds")
    (about,) = metadata["forewarn_collector_landing_age_seconds"]
    assert (about["type"], about["unit"]) == ("gauge", "seconds")  # the unit is OpenMetrics only
    (group,) = ask(prometheus, "rules")["groups"]
    assert len(group["rules"]) == 12
