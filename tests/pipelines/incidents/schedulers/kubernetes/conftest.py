"""Fixtures: a real Kubernetes API server with sixteen simulated nodes on loopback.

The server is Debian 12's 1.20, which `.ci/setup_kube_apiserver` builds. It knows evictions of
`policy/v1beta1` only, so `Evictions120` translates those of the driver. There are no kubelets: pods
run because the tests say so, and end at once when they are deleted.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.pipelines.incidents.schedulers.kubernetes.kubernetes_site import KubernetesSite
from tests.pipelines.incidents.schedulers.scheduler_site import POLICY

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.loop import kubernetes_site
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.schedulers.driver import DriverTimeoutError
from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import (
    MERGE,
    STRATEGIC,
    ApiServer,
    _refusal,
)
from forewarn.pipelines.incidents.schedulers.kubernetes.kubernetes_driver import KubernetesDriver
from forewarn.pipelines.incidents.schedulers.kubernetes.node_machine import NodeReading
from forewarn.response.state.action import Action
from forewarn.response.state.machine import Machine
from forewarn.response.state.step import DrainMode, Step

ROLE = Path(__file__).parents[5] / "deploy" / "kubernetes" / "forewarn-role.yaml"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forewarn"
STEPS_ROLE = ROLE.with_name("forewarn-steps-role.yaml")
DEVICES_ROLE = ROLE.with_name("forewarn-devices-role.yaml")
KARPENTER = "karpenter.sh/do-not-disrupt"
AUTOSCALER = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
NODES = tuple(f"node-{number:05d}" for number in range(16))
TIMEOUT_SECONDS = 300.0
ROLES = "/apis/rbac.authorization.k8s.io/v1"
TOKENS = """\
admin-token,admin,1,system:masters
forewarn-token,system:serviceaccount:forewarn:forewarn,3
"""
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: test
clusters:
- name: test
  cluster: {{server: "https://127.0.0.1:{port}", certificate-authority: "{folder}/apiserver.crt"}}
users:
- name: test
  user: {{token: forewarn-token}}
contexts:
- name: test
  context: {{cluster: test, user: test}}
"""
READING = NodeReading("rack", "switch", ("*quarantine*",), ("*gpu*", "accelerated*"))


@dataclass
class CustomResources:
    """Custom resources of one group, in memory.

    Server 1.20, built with a current Go, crashes when it decodes one (modern-go/reflect2 before
    1.0.2). Whether a request is permitted is asked of the real server.

    Attributes
    ----------
    group : str
    kinds : set of str
        Plural names of the installed kinds.
    has_right : callable
        Takes a verb and a resource.
    objects : dict of str to dict
        By path.
    """

    group: str
    kinds: set[str]
    has_right: Callable[[str, str], bool]
    objects: dict[str, Any] = field(default_factory=dict)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Return the status and the answer of a request."""
        _, _, _, _, plural, *name = path.split("/")
        if plural not in self.kinds:
            return 404, {"message": "the server could not find the requested resource"}
        verb = {"GET": "get" if name else "list", "POST": "create", "DELETE": "delete"}[method]
        if not self.has_right(verb, f"{plural}.{self.group}"):
            words = f'cannot {verb} resource "{plural}" in API group "{self.group}"'
            return 403, {"message": words}
        if not name and method == "GET":
            items = [item for key, item in self.objects.items() if key.startswith(path)]
            return 200, {"metadata": {}, "items": items}
        key = path if name else f"{path}/{body['metadata']['name']}"
        if method == "POST":
            status = 409 if key in self.objects else 201
            return status, self.objects.setdefault(key, body)
        if key not in self.objects:
            return 404, {"message": "not found"}
        return 200, self.objects.pop(key) if method == "DELETE" else self.objects[key]


@dataclass(slots=True)
class Evictions120(ApiServer):
    """Connection that translates evictions for server 1.20, and loses the answers to some changes.

    Attributes
    ----------
    losses : list of str
        Methods whose next successful answer is lost.
    before : callable
        Called before each request with its method and path in one text.
    resources : CustomResources or None
        Answers the requests of its group.
    """

    losses: list[str] = field(default_factory=list)
    before: Callable[[str], object] = str
    resources: CustomResources | None = None

    def _request(self, method: str, path: str, query: Any, *body: Any, **more: Any) -> Any:
        if path.endswith("/eviction"):
            body = ({**body[0], "apiVersion": "policy/v1beta1"}, *body[1:])
        self.before(f"{method} {path}")
        if self.resources is not None and path.startswith(f"/apis/{self.resources.group}/"):
            answer = self._answer(self.resources, method, path, *body, **more)
        else:
            answer = ApiServer._request(self, method, path, query, *body, **more)
        if method in self.losses:
            self.losses.remove(method)
            raise DriverTimeoutError(f"{method} {path}: no answer (lost by the test)")
        return answer

    def _answer(
        self,
        resources: CustomResources,
        method: str,
        path: str,
        body: Any = None,
        form: str = "",  # noqa: ARG002
        *,
        missing_ok: bool = False,
    ) -> Any:
        status, answer = resources.answer(method, path, body)
        if status == 404 and missing_ok:
            return {}, None
        if status >= 300:
            raise _refusal(status, answer, f"{method} {path}")
        return answer, None


def rights_of(rules: list[Any]) -> list[str]:
    """Return `VERB RESOURCE[.GROUP]` of each right."""
    return [
        f"{verb} {name}{f'.{group}' if group else ''}"
        for rule in rules
        for group in rule["apiGroups"]
        for name in rule["resources"]
        for verb in rule["verbs"]
    ]


class Cluster:
    """An API server with its database, and what people, kubelets and operators do."""

    def __init__(
        self, folder: Path, free_port: Callable[[], int], programs: dict[str, Path]
    ) -> None:
        self.folder = folder
        self.programs = programs
        self.port, self.etcd, self.peer = free_port(), free_port(), free_port()
        self.kubeconfig = folder / "kubeconfig"
        self.resources: CustomResources | None = None
        self.device_pools: frozenset[str] = frozenset()
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._http: httpx.Client | None = None

    # --- daemons ----------------------------------------------------------------------------------

    def start(self) -> None:
        (self.folder / "tokens.csv").write_text(TOKENS)
        self.kubeconfig.write_text(KUBECONFIG.format(port=self.port, folder=self.folder))
        key = ("openssl", "genrsa", "-out", str(self.folder / "key"), "2048")
        subprocess.run(key, check=True, capture_output=True)
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.etcd, self.peer))
        self._spawn(
            "etcd",
            *("--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        )
        self.start_server()
        for name in ("forewarn", "gpu-operator", "team"):
            self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        for number, name in enumerate(NODES):
            self.create_node(name, number)
        items = [
            i
            for path in (ROLE, STEPS_ROLE, DEVICES_ROLE)
            for i in yaml.safe_load_all(path.read_text())
        ]
        roles = {i["metadata"]["name"]: i["rules"] for i in items if i["kind"] == "ClusterRole"}
        self.rules, self.step_rules = roles["forewarn"], roles["forewarn-steps"]
        self.device_rules = roles["forewarn-devices"]
        for item in items[1:]:
            namespace = item["metadata"].get("namespace")
            folder = f"{ROLES}/namespaces/{namespace}" if namespace else ROLES
            self.call("POST", f"{folder}/{item['kind'].lower()}s", item)
        self.set_rules(self.rules)
        self.set_rules(self.step_rules, role="forewarn-steps")
        self.set_rules(self.device_rules, role="forewarn-devices")

    def start_server(self) -> None:
        key = str(self.folder / "key")
        self._spawn(
            "kube-apiserver",
            *("--etcd-servers", f"http://127.0.0.1:{self.etcd}"),
            *("--secure-port", str(self.port), "--bind-address", "127.0.0.1"),
            *("--cert-dir", str(self.folder), "--authorization-mode", "RBAC"),
            *("--token-auth-file", str(self.folder / "tokens.csv")),
            *("--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition"),
            "--allow-privileged",
            *("--service-account-issuer", "https://test"),
            *("--service-account-signing-key-file", key, "--service-account-key-file", key),
            *("--service-cluster-ip-range", "10.0.0.0/24"),
        )
        self.until(self._is_ready, "kube-apiserver")

    def _is_ready(self) -> bool:
        try:
            return self.http.get("/readyz").status_code == 200
        except (httpx.HTTPError, OSError):
            return False

    def _spawn(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                [str(self.programs[name]), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def send(self, number: signal.Signals) -> None:
        self._daemons["kube-apiserver"].send_signal(number)

    def kill_server(self) -> None:
        self.send(signal.SIGKILL)
        self._daemons.pop("kube-apiserver").wait(TIMEOUT_SECONDS)

    def stop(self) -> None:
        if self._http is not None:
            self._http.close()
        for daemon in self._daemons.values():
            daemon.kill()
        for daemon in self._daemons.values():
            daemon.wait(TIMEOUT_SECONDS)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            ended = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            assert not ended, [(self.folder / f"{name}.out").read_text()[-2000:] for name in ended]
            assert time.monotonic() < end, f"{what}: not in {TIMEOUT_SECONDS:g} s"
            time.sleep(0.05)

    # --- changes by others ------------------------------------------------------------------------

    @property
    def http(self) -> httpx.Client:
        if self._http is None:
            context = ssl.create_default_context(cafile=str(self.folder / "apiserver.crt"))
            self._http = httpx.Client(
                base_url=f"https://127.0.0.1:{self.port}",
                headers={"Authorization": "Bearer admin-token"},
                verify=context,
                timeout=TIMEOUT_SECONDS,
            )
        return self._http

    def call(
        self, method: str, path: str, body: Any = None, *, form: str = MERGE, who: str = "kubectl"
    ) -> Any:
        """Make a request as an administrator; `who` is the manager of the fields it sets."""
        answer = self.http.request(
            method,
            path,
            json=body,
            params={"fieldManager": who} if method != "GET" else {},
            headers={"Content-Type": form if method == "PATCH" else "application/json"},
        )
        assert answer.is_success, answer.text
        return answer.json()

    def create_node(self, name: str, number: int) -> None:
        labels = {
            **{"pool": "train", "rack": f"r{number // 4}", "switch": f"s{number // 8}"},
            **({"forewarn": "off"} if number == 15 else {}),
        }
        self.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        self.report_ready(name, "True")

    def report_ready(self, name: str, status: str, healthy_gpus: int = 8) -> None:
        """Set what a kubelet reports."""
        body = {
            "status": {
                "conditions": [{"type": "Ready", "status": status}],
                "capacity": {"nvidia.com/gpu": "8", "pods": "110"},
                "allocatable": {"nvidia.com/gpu": str(healthy_gpus), "pods": "110"},
            }
        }
        self.call("PATCH", f"/api/v1/nodes/{name}/status", body, form=STRATEGIC, who="kubelet")

    def report_condition(self, name: str, kind: str, status: str) -> None:
        """Set a condition as node-problem-detector does."""
        item = {"type": kind, "status": status, "reason": "Xid", "message": "Xid 79 on GPU 3"}
        body = {"status": {"conditions": [item]}}
        self.call("PATCH", f"/api/v1/nodes/{name}/status", body, form=STRATEGIC, who="npd")

    def node(self, name: str) -> Any:
        return self.call("GET", f"/api/v1/nodes/{name}")

    def taints(self, name: str) -> list[tuple[str, str, str]]:
        taints = self.node(name)["spec"].get("taints", [])
        return [(taint["key"], taint.get("value", ""), taint["effect"]) for taint in taints]

    def cordoned(self, name: str) -> bool:
        return bool(self.node(name)["spec"].get("unschedulable"))

    def cordon(self, name: str, on: bool = True, who: str = "kubectl-cordon") -> None:
        body = {"spec": {"unschedulable": on or None}}
        self.call("PATCH", f"/api/v1/nodes/{name}", body, who=who)

    def set_taints(self, name: str, *taints: tuple[str, str, str], who: str = "tom") -> None:
        items = [dict(zip(("key", "value", "effect"), taint, strict=True)) for taint in taints]
        self.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": items}}, who=who)

    def label(self, name: str, **labels: str | None) -> None:
        names = {
            "upgrade": "nvidia.com/gpu-driver-upgrade-state",
            "karpenter": "karpenter.sh/nodepool",
            "eks": "eks.amazonaws.com/nodegroup",
        }
        body = {"metadata": {"labels": {names.get(key, key): v for key, v in labels.items()}}}
        self.call("PATCH", f"/api/v1/nodes/{name}", body, who="gpu-operator")

    def annotate(self, name: str, who: str = "tom", **annotations: str | None) -> None:
        """Set annotations; `karpenter` and `autoscaler` stand for their longer names."""
        names = {"karpenter": KARPENTER, "autoscaler": AUTOSCALER}
        body = {"metadata": {"annotations": {names[key]: v for key, v in annotations.items()}}}
        self.call("PATCH", f"/api/v1/nodes/{name}", body, who=who)

    def holds(self, name: str) -> set[str]:
        """Return what keeps a node from being removed."""
        annotations = self.node(name)["metadata"].get("annotations", {})
        return {key for key in (KARPENTER, AUTOSCALER) if annotations.get(key) == "true"}

    def condition(self, name: str) -> tuple[str, str] | None:
        for item in self.node(name)["status"]["conditions"]:
            if item["type"] == "GPUAtRisk":
                return item["status"], item["message"]
        return None

    def run_pod(
        self,
        name: str,
        node: str,
        *,
        owner: tuple[str, str] | None = None,
        namespace: str = "team",
        labels: dict[str, str] | None = None,
    ) -> None:
        """Start a pod of a node; `owner` is the kind and name of its controller."""
        kind, controller = owner or ("", "")
        reference = {"apiVersion": "v1", "kind": kind, "name": controller, "uid": f"u-{controller}"}
        body = {
            "metadata": {
                "name": name,
                "labels": {"app": name, **(labels or {})},
                "ownerReferences": [{**reference, "controller": True}] if owner else [],
            },
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "train"}],
            },
        }
        self.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        conditions = [{"type": "Ready", "status": "True"}]  # budgets protect only ready pods
        body = {"status": {"phase": "Running", "conditions": conditions}}
        self.call("PATCH", path, body, who="kubelet")

    def end_pod(self, name: str) -> None:
        path = f"/api/v1/namespaces/team/pods/{name}/status"
        self.call("PATCH", path, {"status": {"phase": "Succeeded"}}, who="kubelet")

    def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.call("GET", "/api/v1/pods")["items"]]

    def protect(self, app: str, allowed: int) -> None:
        """Set a disruption budget that permits a number of evictions."""
        path = "/apis/policy/v1beta1/namespaces/team/poddisruptionbudgets"
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
        answer = self.call("POST", path, {"metadata": {"name": app}, "spec": spec})
        status = {
            **{"disruptionsAllowed": allowed, "currentHealthy": 1 + allowed},
            **{"desiredHealthy": 1, "expectedPods": 1 + allowed},
            "observedGeneration": answer["metadata"]["generation"],
        }
        self.call("PATCH", f"{path}/{app}/status", {"status": status})

    def set_rules(self, rules: list[Any], missing: str = "", role: str = "forewarn") -> None:
        """Replace the rules of a role, and wait until the server applies them."""
        self.call("PATCH", f"{ROLES}/clusterroles/{role}", {"rules": rules})
        rights = [right.split() for right in rights_of(rules)]
        absent = [tuple(missing.split())] if missing else []
        self.until(
            lambda: (
                all(self.has_right(*right) for right in rights)
                and not any(self.has_right(*right) for right in absent)
            ),
            "rights",
        )

    def has_right(self, verb: str, resource: str) -> bool:
        name, _, sub = resource.partition("/")
        name, _, group = name.partition(".")
        attributes = {"verb": verb, "resource": name, "subresource": sub, "group": group}
        if name == "namespaces":
            attributes["name"] = "kube-system"
        body = {
            "spec": {
                "user": "system:serviceaccount:forewarn:forewarn",
                "resourceAttributes": attributes,
            }
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self.call("POST", path, body)["status"]["allowed"])

    def reset(self) -> None:
        for pod in self.call("GET", "/api/v1/pods")["items"]:
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            self.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")
        path = "/apis/policy/v1beta1/namespaces/team/poddisruptionbudgets"
        self.call("DELETE", path)
        self.call("DELETE", "/api/v1/namespaces/team/events")
        for number, name in enumerate(NODES):
            self.http.delete(f"/api/v1/nodes/{name}")
            self.create_node(name, number)

    # --- forewarn ---------------------------------------------------------------------------------

    @property
    def server(self) -> Evictions120:
        server = Evictions120(str(self.kubeconfig), timeout=TIMEOUT_SECONDS)
        server.resources = self.resources
        return server

    @property
    def driver(self) -> KubernetesDriver:
        settings = (READING, ("gpu-operator",), self.device_pools)
        return KubernetesDriver(self.server, *settings, waits=(0.01, 0.01))

    def machine(self, name: str) -> Machine:
        return next(m for m in self.driver.read().machines if m.name == name)


@pytest.fixture(scope="session")
def cluster(
    require_program: Callable[[str, str], Path],
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        folders = [str(folder) for folder in CACHE.glob("kubernetes-*")]
        patch.setenv("PATH", ":".join([*folders, os.environ["PATH"], "/usr/sbin"]))
        programs = {
            "etcd": require_program("etcd", "etcd-server"),
            "kube-apiserver": require_program("kube-apiserver", "by .ci/setup_kube_apiserver"),
        }
        cluster = Cluster(tmp_path_factory.mktemp("kubernetes"), free_port, programs)
        stack.callback(cluster.stop)
        cluster.start()
        yield cluster


@pytest.fixture
def kubernetes(cluster: Cluster) -> Iterator[Cluster]:
    """Return the cluster, and reset it after a test."""
    yield cluster
    cluster.reset()


@pytest.fixture
def drain() -> Callable[..., Action]:
    """Return `drain(machine, number=17, step=Step.DRAIN, mode=...)`, which creates an action."""

    def action(
        machine: str,
        number: int = 17,
        step: Step = Step.DRAIN,
        mode: DrainMode = DrainMode.DEADLINE,
    ) -> Action:
        moment = Nanoseconds(0)
        names = (machine, "train", None, None, "at_risk")
        return Action(number, 1, *names, step, mode, moment, moment, moment)

    return action


@pytest.fixture
def site(
    kubernetes: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[KubernetesSite]:
    server = kubernetes.server
    monkeypatch.setattr(kubernetes_site, "ApiServer", lambda *_: server)
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "my.toml").touch()
    with ResponseSite.from_config(tmp_path / "my.toml").ledger() as ledger:
        site = KubernetesSite(tmp_path, kubernetes, capsys, ledger, server=server)
        site.configure()
        site.respond()  # the first round records the new policy
        yield site
