from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from tests.pipelines.console.console_client import Console
from tests.pipelines.incidents.api.api_client import NOW
from tests.pipelines.incidents.api.stored_list import DATE, write_list

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.console.sessions import SESSION_LIFETIME
from forewarn.pipelines.incidents.api.access_control import Role
from forewarn.pipelines.incidents.ledger.step_changes import record_change
from forewarn.response.follow_up.step_progress import StepChange, StepEvent
from forewarn.response.state.action import ActionState
from forewarn.response.state.decision import Ruling
from forewarn.response.state.incident import IncidentState, Outcome
from forewarn.response.state.step import Step

STATIC = Path(__file__).parents[3] / "pipelines" / "console" / "static"
# From the packages htmx.org 4.0.1 and uplot 1.6.32 of npm.
CHECKSUMS = {
    "htmx-4.0.1.min.js": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    "uplot-1.6.32.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot-1.6.32.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
PAGES = (
    "/",
    "/out",
    "/list/latest",
    "/incidents",
    "/fleet",
    "/score",
    "/models",
    "/account",
    "/switch",
)
SCRIPT = "<script>alert(1)</script>"


def test_vendored_files_are_those_of_their_packages() -> None:
    for name, checksum in CHECKSUMS.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == checksum
    assert {file.name for file in STATIC.iterdir()} == {
        *CHECKSUMS,
        *("htmx-LICENSE.txt", "uplot-LICENSE.txt", "console.css", "charts.js"),
        "icon.svg",
    }


@pytest.mark.parametrize("path", PAGES)
def test_empty_pages_answer(console: Console, path: str) -> None:
    page = console.browser("admin").get(path)
    assert page.status_code == 200
    assert page.text.count("<h1") == 1
    assert "The same as JSON" in page.text


def test_empty_pages_say_what_fills_them(console: Console) -> None:
    browser = console.browser("see")
    for path, words in {
        "/list/latest": "forewarn score",
        "/incidents": "Findings open incidents",
        "/fleet": "at-risk list fills this page",
        "/score": "nothing to score",
        "/models": "forewarn retrain",
    }.items():
        assert words in browser.get(path).text


def test_pages_answer_their_questions(console: Console, tmp_path: Path) -> None:
    write_list(tmp_path / "lists")
    api = console.api
    api.act(api.incident(job="4711"))
    api.propose(waiting := api.incident("node-2"))
    browser = console.browser("act")
    for path, words in {
        "/": ("1 step waits for you", f"Incident {waiting}: decide", "<bdi>node-1</bdi>"),
        "/list/latest": (
            "2 GPUs flagged of 24",
            "nvidia-smi -q -d ECC",
            "GPU-hours out of service",
        ),
        "/gpu/S001": ("chart-risk", "Xid <strong>63</strong>", "Siblings"),
        "/machine/node-1": ("draining", "S001", "incident 1"),
        "/job/4711": ("No diagnosis has looked", "forewarn lost", "Incident 1"),
        "/incident/1": ("nhc", "finding: check by nhc", "The story", "Undo"),
        "/fleet": (
            "rack-0",
            'aria-label="node-2: waits for approval"',
            "Quality of the data",
            "/gpu/S100",
        ),
        "/incidents": ("/job/4711",),
    }.items():
        text = browser.get(path).text
        assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("state", "word"),
    [("kept", "calibrated"), ("broken", "not calibrated"), ("cannot tell", "too few outcomes")],
)
def test_calibration_of_past_lists_has_a_word(
    console: Console, tmp_path: Path, state: str, word: str
) -> None:
    write_list(tmp_path / "lists")
    (summary,) = (tmp_path / "lists").glob("date=*/summary.json")
    summary.write_text(json.dumps(json.loads(summary.read_text()) | {"promise": {"state": state}}))
    assert f"</span> {word}" in console.browser("see").get("/models").text


def test_verdict_is_shown_on_the_page_of_its_job(console: Console, tmp_path: Path) -> None:
    (tmp_path / "diagnoses").mkdir()
    verdict = {
        "job": "12", "kind": "hang", "cause": "NVLink", "at": "2026-03-01T11:00:00Z",
        "culprits": [{"rank": 3, "machine": "node-2", "why": "never entered"}],
        "also": [{"rank": 9, "machine": "node-3", "why": "entered late", "weight": 0.25},
                 {"rank": 2, "machine": "node-2", "why": "has no dump", "weight": 0.25}],
        "machines": ["node-1", "node-2"], "evidence": [
            {"part": "flight", "says": "x", "details": {"waiting": [0, 1, 3], "absent": [3]}}],
        "next": ["Replace node-2: `forewarn drain node-2`"], "blind": ["kernel"], "probes": {},
    }  # fmt: skip
    (tmp_path / "diagnoses" / "12.json").write_text(json.dumps(verdict) + "\n")
    text = console.browser("see").get("/job/12").text
    for words in (
        *("Verdict: hang", "rank 3", "<code>forewarn drain node-2</code>"),
        "evidence against the culprit is stronger: rank 9 on <bdi>node-3</bdi> (weight 0.25 of the",
        "only wait for others: ranks 0, 1</li>",
        "because no evidence names them: <bdi>node-1</bdi></li>",
    ):
        assert words in text
    assert "rank 2" not in text  # it is on the machine of the culprit


def test_stopped_jobs_of_the_night_are_linked(console: Console, tmp_path: Path) -> None:
    (tmp_path / "diagnoses").mkdir()
    for job, kind, at in (
        *(("12", "hang", "2026-03-01T11:00:00Z"), ("13", "none", "2026-03-01T11:00:00Z")),
        *(("14", "crash", "2026-02-20T11:00:00Z"), ("15", "hang", "2026-03-01T10:00:00Z")),
        ("15", "ended", "2026-03-01T11:30:00Z"),
    ):
        culprits = [{"rank": 3, "machine": "node-2", "why": "never entered"}]
        line = {"job": job, "kind": kind, "at": at, "culprits": culprits}
        with (tmp_path / "diagnoses" / "all.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    text = console.browser("see").get("/").text
    assert '<a href="/job/12">Job <bdi>12</bdi></a>: <strong>hang</strong>' in text
    assert "culprit <bdi>node-2</bdi>" in text
    assert [job for job in ("13", "14", "15") if f"/job/{job}" in text] == []


def test_times_in_reasons_are_shown_as_elsewhere(console: Console) -> None:
    number = console.api.incident()
    reason = "xid 48: reset (asked at 2026-03-01T11:26:00.000000000Z)"
    first = console.api.propose(number)
    assert console.api.ledger.decide(replace(first, at=Nanoseconds(NOW + 1), reason=reason))
    text = console.browser("see").get(f"/incident/{number}").text
    assert "reset (asked at 1 March 2026, 11:26 UTC)" in text
    assert "asked at 2026" not in text


def test_answers_of_the_api_open_in_the_browser_of_a_session(console: Console) -> None:
    console.api.propose(console.api.incident())
    browser = console.browser("admin")
    for page, api in (("/", "/v1/incidents?state=open"), ("/incident/1", "/v1/incidents/1")):
        assert f'<a href="{api}">' in browser.get(page).text
        answer = browser.get(api)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert console.browser().get("/v1/incidents/1").status_code == 401
    assert browser.get("/v1/incidents/1", Authorization="Bearer wrong").status_code == 403
    # A browser sends the cookie by itself, so that it never suffices to act.
    for path in ("/v1/incidents/1/approve", "/v1/incidents/1/undo", "/v1/machines/node-1/drain"):
        assert browser.send("POST", path, json={}).status_code == 401
    assert {note.act for note in console.api.ledger.notes()} == {"report"}


@pytest.mark.parametrize("rows", ["missing", {"a": 1}, [1, None, {"rank": "x"}]])
def test_odd_verdicts_are_no_server_error(console: Console, tmp_path: Path, rows: object) -> None:
    (tmp_path / "diagnoses").mkdir()
    verdict = dict.fromkeys(("culprits", "also", "evidence", "next", "machines", "blind"), rows)
    line = json.dumps(verdict | {"job": "12", "probes": rows, "since": 3, "kind": None})
    (tmp_path / "diagnoses" / "12.json").write_text(line + "\n")
    assert console.browser("see").get("/job/12").status_code == 200


def test_policy_forbids_inline_code(console: Console) -> None:
    browser = console.browser("act")
    number = console.api.incident()
    for path in (*PAGES, f"/incident/{number}", "/nothing", "/sign-in"):
        page = browser.get(path)
        policy = page.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert " style=" not in page.text
        assert "<style" not in page.text
        if page.headers["content-type"].startswith("text/html"):
            assert "script-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy


def test_unchanged_page_is_not_sent_again(console: Console) -> None:
    browser = console.browser("see")
    first = browser.get("/incidents")
    again = browser.get("/incidents", **{"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert first.headers["cache-control"] == "private, no-cache"


def test_long_lists_are_paged_by_the_server(console: Console, tmp_path: Path) -> None:
    write_list(tmp_path / "lists", n=250)
    browser, seen, path = console.browser("see"), 0, f"/list/{DATE}"
    while path:
        text = browser.get(path).text
        seen += text.count("<tr id=")
        _, _, rest = text.partition('rel="next" href="')
        path = rest.split('"')[0]
    assert seen == 250


def test_approved_step_no_longer_waits(console: Console) -> None:
    console.api.propose(number := console.api.incident())
    browser, path = console.browser("approve"), f"/incident/{number}/approve"
    assert "1 step waits for you" in browser.get("/").text
    browser.post(path, browser.form(f"/incident/{number}", path))
    text = browser.get("/").text
    assert "Nothing waits for you" in text
    assert 'aria-label="node-1: waits' not in browser.get("/fleet").text
    text = browser.get(f"/incident/{number}").text
    assert "waits for approval" not in text[: text.index("The story")]


def test_drained_machine_waits_for_its_return(console: Console, tmp_path: Path) -> None:
    write_list(tmp_path / "lists")
    console.api.act(number := console.api.incident(), ActionState.DRAINED)
    console.api.propose(number, ruling=Ruling.HOLD)
    browser = console.browser("act")
    today = browser.get("/").text
    for words in ("1 step waits for you", "repair it, then return it", 'href="/out"'):
        assert words in today
    assert 'id="blocked"' not in today  # its machine is drained already
    assert "repair it, then return it" in browser.get("/out").text
    assert "repair it, then return it" in browser.get(f"/incident/{number}").text
    gpu = browser.get("/gpu/S001").text
    assert "drained: runs no job" in gpu
    assert "/drain?machine" not in gpu
    assert "drained: runs no job" in browser.get("/list/latest").text


def test_returned_machine_stays_on_the_page_of_those_out_of_service(console: Console) -> None:
    console.api.act(console.api.incident(), ActionState.RELEASED)
    browser = console.browser("see")
    page = browser.get("/out").text
    assert "None. A machine is listed here" in page
    assert 'href="/machine/node-1"' in page[page.index('id="returned"') :]


def test_incident_whose_findings_name_the_gpu_is_on_its_page_only(
    console: Console, tmp_path: Path
) -> None:
    write_list(tmp_path / "lists")
    number = console.api.incident()  # opened for the machine
    assert console.api.incident(gpu_serial="S001") == number  # the repeat names the GPU
    browser, link = console.browser("see"), f'"/incident/{number}"'
    for serial, is_shown in (("S001", True), ("S002", False)):
        assert (link in browser.get(f"/gpu/{serial}").text) is is_shown
        assert bool(console.api.get(f"/v1/gpus/{serial}").json()["incidents"]) is is_shown


def test_request_to_a_person_waits_for_them(console: Console) -> None:
    action = console.api.act(number := console.api.incident(), ActionState.DRAINED, Step.RESET)
    browser = console.browser("see")
    assert "Nothing waits for you" in browser.get("/").text
    request = StepChange(Step.RESET, StepEvent.HANDED_OVER, "a person must reset it", NOW)
    assert record_change(console.api.ledger, action, request)
    console.site.pages.clear()
    for path in ("/", "/out", f"/incident/{number}"):
        assert "a person must reset it" in browser.get(path).text
    assert "1 step waits for you" in browser.get("/").text


def test_undone_incident_shows_its_newest_state(console: Console) -> None:
    console.api.act(number := console.api.incident())
    console.api.propose(number, ruling=Ruling.ACT)
    browser, path = console.browser("act"), f"/incident/{number}/undo"
    form = browser.form(f"/incident/{number}", path) | {"why": "fan replaced"}
    answer = browser.post(path, form)
    text = browser.get(answer.headers["location"]).text
    hero = text[text.index('<div class="card hero') : text.index("The story")]
    assert "Recorded: undone" in text
    assert "overridden by a person" in hero
    assert "fan replaced" in hero
    assert "acting" not in hero
    assert path not in text
    assert "acting" not in browser.get("/incidents").text


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("S001", "/gpu/S001"),
        ("node-2", "/machine/node-2"),
        ("4711", "/job/4711"),
        ("job 4711", "/job/4711"),
        ("1", "/incident/1"),
    ],
)
def test_search_finds_gpu_machine_job_and_incident(
    console: Console, tmp_path: Path, text: str, target: str
) -> None:
    write_list(tmp_path / "lists")
    console.api.incident("node-7", job="4711")
    answer = console.browser("see").get(f"/search?q={text}")
    assert (answer.status_code, answer.headers.get("location")) == (303, target)


def test_search_offers_partial_matches(console: Console, tmp_path: Path) -> None:
    write_list(tmp_path / "lists")
    text = console.browser("see").get("/search?q=00").text
    assert '<a href="/gpu/S007">' in text
    assert "Nothing." in console.browser("see").get("/search?q=nothing").text


# --- what hosts can send --------------------------------------------------------------------------


def test_script_in_fields_of_hosts_is_shown_as_text(console: Console, tmp_path: Path) -> None:
    names = [f"{SCRIPT}{i}" for i in range(24)]
    write_list(tmp_path / "lists", gpu_serial=names, machine_id=SCRIPT, slot=SCRIPT,
               reasons=SCRIPT, model_version=SCRIPT, note=SCRIPT)  # fmt: skip
    (tmp_path / "diagnoses").mkdir()
    row = {"rank": SCRIPT, "machine": SCRIPT, "why": SCRIPT, "part": SCRIPT, "says": SCRIPT}
    verdict = {name: [row] for name in ("culprits", "also", "evidence")}
    verdict |= {"probes": {SCRIPT: {"state": SCRIPT, "why": SCRIPT}}}  # type: ignore[dict-item]
    line = verdict | {"job": "12", "kind": SCRIPT, "cause": SCRIPT, "next": [SCRIPT]}
    (tmp_path / "diagnoses" / "12.json").write_text(json.dumps(line) + "\n")
    evidence = {"message": SCRIPT, SCRIPT: [SCRIPT]}
    number = console.api.incident(evidence=evidence)
    browser = console.browser("act")
    gpu = "/gpu/%3Cscript%3Ealert(1)%3C%2Fscript%3E1"
    for path in ("/", "/list/latest", gpu, "/job/12", f"/incident/{number}", "/fleet", "/incidents",
                 "/search?q=alert", f"/drain?machine={SCRIPT}"):  # fmt: skip
        page = browser.get(path)
        assert page.status_code == 200, path
        assert "<script>" not in page.text, path
        assert "&lt;script&gt;" in page.text or path == "/incidents"


def test_control_characters_are_replaced(console: Console, tmp_path: Path) -> None:
    write_list(tmp_path / "lists", gpu_serial=[f"SN\u202e{i}" for i in range(24)])
    assert "\u202e" not in console.browser("see").get("/list/latest").text.replace("%E2%80%AE", "")


# --- sign-in and acts -----------------------------------------------------------------------------


def test_everything_needs_a_session(console: Console) -> None:
    browser = console.browser()
    for path in (*PAGES, "/list/latest", "/incident/1", "/drain", "/search?q=x", "/clock"):
        answer = browser.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/sign-in?to=%2F")
    assert browser.post("/incident/1/approve", {}).headers["location"] == "/sign-in"


def test_cookie_is_bound_to_the_site(console: Console) -> None:
    answer = console.browser().post("/sign-in", {"token": "see-token", "to": "/incident/3"})
    cookie = answer.headers["set-cookie"]
    for word in ("HttpOnly", "SameSite=strict", "Max-Age=43200", "Path=/"):
        assert word in cookie
    assert "Secure" not in cookie
    assert answer.headers["location"] == "/incident/3"
    console.site.secure = True
    again = console.browser().post("/sign-in", {"token": "see-token"})
    assert "Secure" in again.headers["set-cookie"]


@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "/\\evil", "x\r\ny"])
def test_sign_in_leads_to_no_other_site(console: Console, target: str) -> None:
    answer = console.browser().post("/sign-in", {"token": "see-token", "to": target})
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize("token", ["", "wrong", "report-token"])
def test_invalid_tokens_are_refused(console: Console, token: str) -> None:
    answer = console.browser().post("/sign-in", {"token": token})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert 'role="search"' not in answer.text
    assert ('name="token"' in answer.text) is (token != "report-token")


def test_sign_in_is_limited_by_address(console: Console) -> None:
    browser = console.browser()
    codes = [browser.post("/sign-in", {"token": "wrong"}).status_code for _ in range(12)]
    assert codes == [403] * 10 + [429] * 2


def test_session_expires(console: Console) -> None:
    browser = console.browser("see")
    console.clock.moment = Nanoseconds(NOW + SESSION_LIFETIME)
    assert browser.get("/").status_code == 303


def test_sign_out_ends_the_session(console: Console) -> None:
    browser = console.browser("see")
    name = browser.cookies["forewarn_session"]
    form = browser.form("/account", "/sign-out")
    assert browser.post("/sign-out", form).status_code == 303
    browser.cookies = {"forewarn_session": name}
    assert browser.get("/").status_code == 303


def test_link_from_another_site_is_repeated_once(console: Console) -> None:
    answer = console.browser().get("/incident/3", **{"Sec-Fetch-Site": "cross-site"})
    assert '<meta http-equiv="refresh" content="0;url=/incident/3">' in answer.text


def test_approval_is_recorded_under_the_name(console: Console) -> None:
    console.api.propose(number := console.api.incident())
    browser = console.browser("approve")
    form = browser.form(f"/incident/{number}", f"/incident/{number}/approve")
    answer = browser.post(f"/incident/{number}/approve", form | {"why": "night shift"})
    assert answer.headers["location"] == f"/incident/{number}?done=approve"
    assert "Recorded: approved" in browser.get(answer.headers["location"]).text
    approval = console.api.ledger.approvals([number])[number]
    assert approval.who == "approve-ann"
    note = console.api.ledger.notes()[0]
    assert (note.who, note.act) == ("approve-ann", "approve")
    page = browser.get(f"/incident/{number}").text
    assert "Approve the drain" not in page
    assert "approve-ann" in page


def test_form_counts_once(console: Console) -> None:
    console.api.propose(number := console.api.incident())
    browser, path = console.browser("act"), f"/incident/{number}/outcome"
    form = browser.form(f"/incident/{number}", path) | {"outcome": "confirmed"}
    assert browser.post(path, form).status_code == 303
    assert browser.post(path, form | {"outcome": "unknown"}).status_code == 409
    incident = console.api.ledger.incident(number)
    assert incident is not None
    assert incident.outcome is Outcome.CONFIRMED


def test_forged_forms_change_nothing(console: Console) -> None:
    console.api.act(number := console.api.incident())
    path = f"/incident/{number}/undo"
    ann, eve = console.browser("act"), console.browser("admin")
    stolen = eve.form(f"/incident/{number}", path)
    mine = ann.form(f"/incident/{number}", path)
    assert ann.post(path, {"why": "x"}).status_code == 403
    assert ann.post(path, stolen).status_code == 403
    assert ann.post(path, mine, **{"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert ann.send("POST", path, json=mine).status_code == 415
    assert console.api.ledger.incident(number).state is IncidentState.OPEN  # type: ignore[union-attr]
    assert ann.post(path, mine).status_code == 303
    assert console.api.ledger.incident(number).state is IncidentState.OVERRIDDEN  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("act", "needed"),
    [("approve", Role.APPROVE), ("ack", Role.APPROVE), ("undo", Role.ACT), ("outcome", Role.ACT)],
)
def test_roles_are_enforced(console: Console, act: str, needed: Role) -> None:
    console.api.propose(number := console.api.incident())
    path = f"/incident/{number}/{act}"
    for role in (Role.SEE, Role.APPROVE, Role.ACT, Role.ADMIN):
        browser = console.browser(role)
        assert (path in browser.get(f"/incident/{number}").text) is role.includes(needed)
        status = browser.post(path, {"form": "x.y"}).status_code
        assert "role" in browser.post(path, {}).text or role.includes(needed)
        assert status == 403


def test_approval_of_a_replaced_decision_is_refused(console: Console) -> None:
    console.api.propose(number := console.api.incident())
    browser, path = console.browser("approve"), f"/incident/{number}/approve"
    form = browser.form(f"/incident/{number}", path)
    answer = browser.post(path, form | {"decision_at": str(int(form["decision_at"]) - 1)})
    assert answer.status_code == 409
    assert console.api.ledger.approvals([number]) == {}


def test_drain_and_switch_are_requested(console: Console) -> None:
    browser = console.browser("admin")
    form = browser.form("/drain?machine=node-5", "/drain")
    answer = browser.post("/drain", form | {"machine": "node-5", "mode": "finish", "why": "fan"})
    assert answer.headers["location"] == "/incident/1?done=drain"
    bad = browser.form("/drain", "/drain") | {"machine": "a b", "mode": "finish"}
    assert browser.post("/drain", bad).status_code == 422
    assert browser.post("/switch", browser.form("/switch", "/switch")).status_code == 422
    assert console.api.context.switch.off() is None
    browser.post("/switch", browser.form("/switch", "/switch") | {"why": "storm"})
    assert "just now" in browser.get("/").text  # by the clock of the site
    assert console.api.context.switch.off() is not None
    assert "forewarn is stopped" in browser.get("/").text
    assert console.browser("approve").get("/switch").status_code == 403
    browser.post("/switch", browser.form("/switch", "/switch"))
    assert console.api.context.switch.off() is None


def test_clock_belongs_to_simulations(console: Console) -> None:
    assert console.browser("admin").get("/clock").status_code == 404


def test_ledger_that_does_not_answer_is_a_page(console: Console) -> None:
    browser = console.browser("see")
    console.api.break_ledger()
    answer = browser.get("/incidents")
    assert answer.status_code == 503
    assert "the ledger does not answer" in answer.text


def test_list_of_another_form_is_an_error_page(console: Console, tmp_path: Path) -> None:
    folder = write_list(tmp_path / "lists")
    pd.DataFrame({"x": [1]}).to_parquet(folder / "at_risk.parquet")
    answer = console.browser("see").get("/list/latest")
    assert answer.status_code == 409
    assert "column <code>gpu_serial</code> is missing" in answer.text
