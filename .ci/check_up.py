"""Check that `forewarn up` of an installed wheel starts; run by .ci/run outside the repository.

It runs in an environment in which the wheel and its extra `airflow` are installed. Its parts start,
both pages respond, Airflow finds every DAG of the wheel, and Ctrl-C stops all of it.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

_PATIENCE_SECONDS = 300.0


def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def printed_login(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Read what `forewarn up` prints once both pages respond; return user and password."""
    login = ("", "")
    for line in process.stdout or ():
        if line.startswith("login"):
            _, user, password = line.split()
            login = (user, password)
        if line.startswith("Ctrl-C"):
            return login
    sys.exit(f"forewarn up ended with {process.wait()} before its services responded")


def get(client: httpx.Client, path: str) -> Any:
    """Return the JSON answer of Airflow's API; repeat a call that answers 500 (SQLite locked)."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (answer := client.get(f"/api/v2/{path}")).is_server_error and time.monotonic() < deadline:
        time.sleep(1)
    return answer.raise_for_status().json()


def await_dags(client: httpx.Client, expected: set[str]) -> None:
    """Wait until Airflow has parsed every DAG file of the wheel without an error."""
    deadline, names = time.monotonic() + _PATIENCE_SECONDS, set()
    while names != expected:
        if errors := get(client, "importErrors")["import_errors"]:
            sys.exit(f"a DAG file cannot be imported: {errors[0]['stack_trace']}")
        if time.monotonic() > deadline:
            sys.exit(f"Airflow found the DAGs {sorted(names)}, expected {sorted(expected)}")
        time.sleep(1)
        names = {dag["dag_id"] for dag in get(client, "dags")["dags"]}


def check_services(ports: tuple[int, int], login: tuple[str, str]) -> None:
    """Fail unless both pages respond and Airflow finds the DAGs."""
    import forewarn.dags

    expected = {path.stem for path in Path(*forewarn.dags.__path__).glob("forewarn_*.py")}
    user, password = login
    for port in ports:
        url = f"http://127.0.0.1:{port}/"
        httpx.get(url, trust_env=False, timeout=_PATIENCE_SECONDS).raise_for_status()
    url = f"http://127.0.0.1:{ports[0]}"
    with httpx.Client(base_url=url, trust_env=False, timeout=_PATIENCE_SECONDS) as client:
        sent = {"username": user, "password": password}
        token = client.post("/auth/token", json=sent).raise_for_status().json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        await_dags(client, expected)
    sys.stdout.write(f"Airflow and MLflow respond; DAGs: {', '.join(sorted(expected))}\n")


def main() -> None:
    """Start `forewarn up`, check its services, and stop it."""
    ports = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("forewarn")), "up", "--folder", folder]
        command += ["--gpus", "16", "--airflow-port", str(ports[0]), "--mlflow-port", str(ports[1])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                check_services(ports, printed_login(process))
            finally:
                process.send_signal(signal.SIGINT)
        if process.returncode:
            sys.exit(f"forewarn up ended with {process.returncode} after Ctrl-C, expected 0")


if __name__ == "__main__":
    main()
