"""Routes with forms: sign-in, and the acts of people on incidents, machines and the switch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import TypeAdapter, ValidationError

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.console.page_views import Page, PageViews
from forewarn.pipelines.console.page_words import path_of
from forewarn.pipelines.console.sessions import Session
from forewarn.pipelines.console.signed_in import (
    COOKIE,
    PageRoute,
    console_of,
    form_values,
    own_path,
    person_page,
    require_session,
    set_cookie,
    signed_in,
)
from forewarn.pipelines.incidents.api.access_control import Role
from forewarn.pipelines.incidents.api.input_types import MachineName, Reason
from forewarn.pipelines.incidents.api.manual_actions import Operator
from forewarn.pipelines.serving.request_bodies import RefusedError
from forewarn.response.state.action import ActionState
from forewarn.response.state.incident import IncidentState, Outcome
from forewarn.response.state.step import DrainMode

__all__ = ["act_router"]

act_router = APIRouter(route_class=PageRoute, include_in_schema=False)

Number = Annotated[int, Path(ge=1, le=2**63 - 1)]
_REASON: Final[TypeAdapter[str]] = TypeAdapter(Reason)
_MACHINE: Final[TypeAdapter[str]] = TypeAdapter(MachineName)
_MODES: Final = (
    ("finish", "finish: running jobs may end"),
    ("deadline", "deadline: within a day"),
    ("now", "now: requeue at once"),
)
_RECORDED: Final = {
    "": "",
    "approve": "Recorded: approved. The loop carries the step out, within the limits.",
    "ack": "Recorded: acknowledged.",
    "undo": "Recorded: undone. The loop returns what forewarn took out of service.",
    "outcome": "Recorded: the outcome.",
    "drain": "Recorded: the drain is requested. The loop carries it out, within the limits.",
}
_NO_REASON: Final = "no reason given"
_PLAIN: Final[dict[str, Any]] = {"forms": (), "texts": (), "links": ()}


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    label: str
    type: str = "text"
    value: str = ""
    options: tuple[tuple[str, str], ...] = ()
    required: bool = False


@dataclass(frozen=True, slots=True)
class _Form:
    action: str
    button: str
    token: str = ""
    fields: tuple[_Field, ...] = ()
    hidden: tuple[tuple[str, str], ...] = ()
    quiet: bool = False


# --- signing in and out ---------------------------------------------------------------------------


@act_router.get("/sign-in")
async def ask_for_token(
    request: Request, to: Annotated[str, Query(max_length=2000)] = "/"
) -> Response:
    """Show the sign-in form."""
    return _sign_in_page(request, to)


def _sign_in_page(request: Request, to: str, refused: str = "") -> Response:
    """Return the sign-in form, without navigation: a token belongs into its field only."""
    field = _Field("token", "Token", "password", required=True)
    form = _Form("/sign-in", "Sign in", fields=(field,), hidden=(("to", own_path(to)),))
    texts = (
        "Your token is the one of the API: `forewarn respond --new-token NAME:ROLE` makes one.",
    )
    values = _PLAIN | {"forms": (form,), "texts": (refused, *texts) if refused else texts}
    if console_of(request).openid is not None:
        target = quote(own_path(to), safe="")
        values |= {"links": ((f"/sign-in/openid?to={target}", "Sign in with your account"),)}
    page = Page("form", "Sign in", "/openapi.json", values)
    return person_page(request, page, 403 if refused else 200, navigation=False)


@act_router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Start a session for the holder of a token."""
    site = console_of(request)
    now = Nanoseconds(site.clock.now())
    site.sign_ins.spend(request.client.host if request.client else "", now)
    values = await form_values(request)
    holder = site.context.access.holder(values.get("token", "").strip())
    if holder is None:
        site.context.metrics.refuse(403)
        return _sign_in_page(request, values.get("to", "/"), "The token is not valid. Try again.")
    if not holder.role.includes(Role.SEE):
        raise RefusedError(403, f"the role `{holder.role}` may send findings, and not read")
    response = RedirectResponse(own_path(values.get("to", "/")), 303)
    set_cookie(response, site, site.sessions.start(holder, now))
    return response


@act_router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """End the session."""
    session = require_session(request, Role.SEE)
    session.use_form((await form_values(request)).get("form", ""), "/sign-out")
    site = console_of(request)
    site.sessions.end(request.cookies.get(COOKIE, ""))
    response = RedirectResponse("/sign-in", 303, headers={"Clear-Site-Data": '"cache"'})
    set_cookie(response, site, "")
    return response


@act_router.get("/account")
@signed_in
async def account(request: Request) -> Response:
    """Show who is signed in, and what that permits."""
    session = require_session(request, Role.SEE)
    form = _Form("/sign-out", "Sign out", session.form_token("/sign-out"))
    holder = session.holder
    texts = (
        f"Signed in as {holder.name}. Role: {holder.role}.",
        "see: look. approve: approve, acknowledge, stop forewarn. act: undo, record outcomes, "
        "request drains. admin: let forewarn act again. Each includes the ones before.",
    )
    links = (("/switch", "Stop forewarn, or let it act again"), ("/openapi.json", "The API"))
    values = _PLAIN | {"texts": texts, "forms": (form,), "links": links}
    return person_page(
        request, Page("form", "Account", "/v1/switch", values), active_page="Account"
    )


# --- incidents ------------------------------------------------------------------------------------


@act_router.get("/incident/{number}")
@signed_in
async def incident(
    request: Request,
    number: Number,
    done: Annotated[Literal["", "approve", "ack", "undo", "outcome", "drain"], Query()] = "",
) -> Response:
    """Show an incident with the forms that the person may send, and what was just recorded."""
    session = require_session(request, Role.SEE)
    site = console_of(request)
    views = PageViews(site)

    def make() -> Page:
        return views.incident(number)

    page = await site.context.read(("incident", number), make)
    forms = _incident_forms(page.values, session, number)
    address = f"{path_of('incident', number)}/live"  # equal for all people, so that it is shared
    name, notice = session.holder.name, _RECORDED[done]
    return person_page(request, page, address=address, forms=forms, person=name, notice=notice)


def _incident_forms(values: Mapping[str, Any], session: Session, number: int) -> dict[str, str]:
    """Return the tokens of the forms that a person may send now."""
    role, shown = session.holder.role, values["incident"]
    is_open = shown.state is IncidentState.OPEN
    possible = {
        "approve": values["proposed"] and not values["approved"] and role.includes(Role.APPROVE),
        "ack": not shown.acknowledged and is_open and role.includes(Role.APPROVE),
        "undo": (is_open or _still_acting(values)) and role.includes(Role.ACT),
        "outcome": role.includes(Role.ACT),
    }
    path = path_of("incident", number)
    return {act: session.form_token(f"{path}/{act}") for act, may in possible.items() if may}


def _still_acting(values: Mapping[str, Any]) -> bool:
    """Tell whether an action is left that nothing returns yet."""
    return any(a.state is not ActionState.RELEASING for a in values["open_actions"])


async def _act(
    request: Request,
    needed: Role,
    act: Callable[[Operator, Mapping[str, str]], object],
    back: Callable[[object], str],
) -> Response:
    """Run an act of the person who sent a form, once, and go to the page that shows its result."""
    session = require_session(request, needed)
    site = console_of(request)
    site.acts.spend(request.cookies[COOKIE], Nanoseconds(site.clock.now()))
    values = await form_values(request)
    session.use_form(values.get("form", ""), request.url.path)
    try:
        why = _REASON.validate_python(values.get("why", ""))
    except ValidationError:
        raise RefusedError(
            422, "why: expected one line of plain text without `<` and `>`"
        ) from None
    context = site.context
    operator = Operator(context.ledger, session.holder.name, context.now(), why)
    result = await context.write(lambda: act(operator, values))
    site.pages.clear()
    return RedirectResponse(back(result), 303)


def _shown_after(act: str, number: object) -> str:
    """Return the address of an incident that confirms an act."""
    return f"{path_of('incident', number)}?done={act}"


@act_router.post("/incident/{number}/approve")
async def approve(request: Request, number: Number) -> Response:
    """Approve the decision that the person saw."""

    def act(operator: Operator, values: Mapping[str, str]) -> object:
        at = values.get("decision_at", "")
        if not (at.isascii() and at.isdigit() and len(at) < 20):
            raise RefusedError(422, "decision_at: expected the time of a decision")
        return operator.approve(number, Nanoseconds(int(at)))

    return await _act(request, Role.APPROVE, act, lambda _: _shown_after("approve", number))


@act_router.post("/incident/{number}/ack")
async def acknowledge(request: Request, number: Number) -> Response:
    """Acknowledge an incident."""
    return await _act(
        *(request, Role.APPROVE, lambda operator, _: operator.acknowledge(number)),
        lambda _: _shown_after("ack", number),
    )


@act_router.post("/incident/{number}/undo")
async def undo(request: Request, number: Number) -> Response:
    """Undo the actions of an incident."""
    return await _act(
        *(request, Role.ACT, lambda operator, _: operator.undo(number)),
        lambda _: _shown_after("undo", number),
    )


@act_router.post("/incident/{number}/outcome")
async def record_outcome(request: Request, number: Number) -> Response:
    """Record the outcome of an incident."""

    def act(operator: Operator, values: Mapping[str, str]) -> object:
        value = values.get("outcome", "")
        if value not in list(Outcome):
            raise RefusedError(422, f"outcome: expected one of {', '.join(Outcome)}")
        return operator.record_outcome(number, Outcome(value))

    return await _act(request, Role.ACT, act, lambda _: _shown_after("outcome", number))


# --- machines and the switch ----------------------------------------------------------------------


@act_router.get("/drain")
@signed_in
async def ask_for_drain(
    request: Request, machine: Annotated[str, Query(max_length=253)] = ""
) -> Response:
    """Show the form that requests a drain."""
    session = require_session(request, Role.ACT)
    fields = (
        _Field("machine", "Machine", value=machine),
        _Field("mode", "What happens to running jobs", options=_MODES),
        _Field("why", "Why"),
    )
    form = _Form("/drain", "Request the drain", session.form_token("/drain"), fields)
    texts = ("The limits of its pool apply to manual drains as well.",)
    values = _PLAIN | {"texts": texts, "forms": (form,)}
    return person_page(request, Page("form", "Drain a machine", "/v1/actions", values))


@act_router.post("/drain")
async def drain(request: Request) -> Response:
    """Request the drain of a machine."""

    def act(operator: Operator, values: Mapping[str, str]) -> object:
        try:
            machine = _MACHINE.validate_python(values.get("machine", ""))
        except ValidationError:
            raise RefusedError(422, "machine: expected the name of a host") from None
        mode = values.get("mode", "")
        if mode not in list(DrainMode):
            raise RefusedError(422, f"mode: expected one of {', '.join(DrainMode)}")
        return operator.drain(machine, DrainMode(mode))[0]

    return await _act(request, Role.ACT, act, lambda number: _shown_after("drain", number))


@act_router.get("/switch")
@signed_in
async def ask_for_switch(request: Request) -> Response:
    """Show the form that stops all actions, or resumes them."""
    site = console_of(request)
    off = await site.context.write(site.context.switch.off)
    session = require_session(request, Role.APPROVE if off is None else Role.ADMIN)
    acting, button = (
        ("off", "Stop all actions") if off is None else ("on", "Let forewarn act again")
    )
    form = _Form(
        "/switch",
        button,
        session.form_token("/switch"),
        (_Field("why", "Why", required=off is None),),
        (("acting", acting),),
    )
    texts = (
        "forewarn acts." if off is None else f"Stopped by {off.who}: {off.why or _NO_REASON}",
        "Findings are still recorded and actions still released while it is stopped.",
    )
    values = _PLAIN | {"texts": texts, "forms": (form,)}
    return person_page(request, Page("form", "The kill switch", "/v1/switch", values))


@act_router.post("/switch")
async def turn_switch(request: Request) -> Response:
    """Stop all actions, or resume them."""
    context = console_of(request).context
    session = require_session(request, Role.APPROVE)

    def act(operator: Operator, values: Mapping[str, str]) -> object:
        if values.get("acting") == "on":
            if not session.holder.role.includes(Role.ADMIN):
                raise RefusedError(403, f"your role is `{session.holder.role}`, expected `admin`")
            context.switch.lift(now=operator.now, who=operator.name, why=operator.why)
        elif not operator.why:
            raise RefusedError(422, "why: expected the reason for which forewarn is stopped")
        else:
            context.switch.stop(now=operator.now, who=operator.name, why=operator.why)
        return None

    return await _act(request, Role.APPROVE, act, lambda _: "/")


@act_router.get("/clock")
@signed_in
async def show_clock(request: Request) -> Response:
    """Show the forms that control the clock of a simulation."""
    session = require_session(request, Role.ACT)
    control = console_of(request).time_control
    if control is None:
        raise RefusedError(404, "this is no simulation")
    words = {
        "stop": "Stop",
        "go": "Go on",
        "step": "One hour",
        "slower": "Slower",
        "faster": "Faster",
    }
    forms = tuple(
        _Form("/clock", word, session.form_token("/clock"), hidden=(("act", act),), quiet=True)
        for act, word in words.items()
    )
    values = _PLAIN | {"texts": (control.status(),), "forms": forms}
    return person_page(request, Page("form", "The clock of the simulation", "/v1/actions", values))


@act_router.post("/clock")
async def turn_clock(request: Request) -> Response:
    """Control the clock of a simulation."""
    control = console_of(request).time_control
    if control is None:
        raise RefusedError(404, "this is no simulation")
    return await _act(
        *(request, Role.ACT, lambda _, values: control.act(values.get("act", ""))),
        lambda _: "/clock",
    )
