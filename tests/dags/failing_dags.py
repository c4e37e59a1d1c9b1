"""Run the DAGs on a site that lacks something: `failing_dags.py DAGS BROKEN UNREACHABLE OUT`.

Writes a JSON object: case -> state of the run, and state and tries of each task. BROKEN is a
configuration that cannot be used, UNREACHABLE one whose Prometheus server does not respond.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.dag_processing.dagbag import DagBag
from airflow.utils.db import initdb

from forewarn.pipelines import scheduled_tasks


def refuse(config: str, at: str) -> dict[str, Any]:
    """Retrain without a promotion, like the gate that exits with 1."""
    return {"promoted": False, "reasons": [f"{Path(config).name} lost at {at}"]}


def run(dag: Any, config: str, **conf: str) -> dict[str, Any]:
    """Run a DAG without a scheduler; tries follow each other at once."""
    os.environ["AIRFLOW_VAR_FOREWARN_CONFIG"] = config
    for task in dag.tasks:
        task.retry_delay, task.retries = timedelta(0), 1
    finished = dag.test(run_conf=conf)
    tasks = {ti.task_id: [str(ti.state), ti.try_number] for ti in finished.get_task_instances()}
    return {"state": str(finished.state), "tasks": tasks}


def main(folder: str, broken: str, unreachable: str, out: str) -> None:
    logging.disable(logging.CRITICAL)
    initdb()
    scheduled_tasks.retrain_site = refuse
    scheduled_tasks.train_length = lambda config, at, length: f"{config} {at} {length}"
    results = {}
    for name, dag in sorted(DagBag(folder).dags.items()):
        results[name] = run(dag, broken)
        if name == "forewarn_ingest":
            results["unreachable"] = run(dag, unreachable)
        if name == "forewarn_retrain":
            results["refused"] = run(dag, unreachable, at="2025-03-04")
            results["misspelt"] = run(dag, unreachable, day="2025-03-04")
    Path(out).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
