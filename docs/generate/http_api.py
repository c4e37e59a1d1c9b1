"""The reference of the response API, from its OpenAPI description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from docs.generate.markdown import escaped, table

from forewarn.pipelines.incidents.api.api_context import ApiContext
from forewarn.pipelines.incidents.api.app import make_app

__all__ = ["response_api_page"]

HEAD = """# Response API

The HTTP API of `forewarn respond --serve`, for programs that report findings or show incidents. The
same description is served as JSON at `GET /openapi.json`. `GET /health` and `GET /metrics` need no
token.

"""
Schema = Mapping[str, Any]


def response_api_page() -> str:
    """Return the page of all routes and of what they take and return, as Markdown."""
    schema = make_app(cast(ApiContext, None)).openapi()  # describing the routes needs no ledger
    routes = [
        (method, path, route)
        for path, methods in schema["paths"].items()
        for method, route in methods.items()
    ]
    rows = [
        (f"[`{method.upper()} {path}`](#{route['operationId']})", escaped(_first_sentence(route)))
        for method, path, route in routes
    ]
    common = _common_refusals([route for *_, route in routes])
    parts = [HEAD, schema["info"]["description"], "\n\n", table(("route", "what it does"), rows)]
    parts.append(
        "Every route may also answer with one of these, and an [ErrorAnswer](#erroranswer):\n"
    )
    parts.append(table(("status", "meaning"), common.items()))
    parts += [_route(method, path, route, common) for method, path, route in routes]
    parts.append("\n## Objects\n")
    parts += [
        _object(name, value) for name, value in sorted(schema["components"]["schemas"].items())
    ]
    return "\n".join(parts)


def _first_sentence(route: Schema) -> str:
    return str(route["description"]).split("\n\n")[0]


def _common_refusals(routes: list[Schema]) -> dict[str, str]:
    """Return status -> meaning of the refusals that all routes share."""
    shared = [
        {(code, escaped(answer["description"])) for code, answer in route["responses"].items()}
        for route in routes
    ]
    return {code: text for code, text in sorted(set.intersection(*shared)) if code >= "400"}


def _route(method: str, path: str, route: Schema, common: Mapping[str, str]) -> str:
    parts = [f"\n## {method.upper()} {path} {{ #{route['operationId']} }}\n", route["description"]]
    if parameters := route.get("parameters"):
        rows = [
            (
                f"`{entry['name']}`",
                entry["in"],
                _type(entry["schema"]),
                escaped(entry.get("description", entry["schema"].get("description", ""))),
            )
            for entry in parameters
        ]
        parts.append("\n" + table(("parameter", "in", "type", "meaning"), rows))
    if body := route.get("requestBody"):
        content = body["content"]["application/json"]["schema"]
        parts.append(f"\nBody: {_type(content)}. {escaped(content.get('description', ''))}")
    answers = [
        (code, _answer(answer), escaped(answer["description"]))
        for code, answer in sorted(route["responses"].items())
        if code not in common
    ]
    parts.append("\n" + table(("status", "body", "meaning"), answers))
    return "\n".join(parts)


def _answer(answer: Schema) -> str:
    content = answer.get("content", {}).get("application/json", {}).get("schema")
    return _type(content) if content else ""


def _object(name: str, value: Schema) -> str:
    parts = [f"\n### {name}\n", escaped(value.get("description", ""))]
    if "enum" in value:
        parts.append("\nOne of " + ", ".join(f"`{entry}`" for entry in value["enum"]) + ".")
    if properties := value.get("properties"):
        required = value.get("required", ())
        rows = [
            (
                f"`{key}`",
                _type(entry) + ("" if key in required else ", optional"),
                escaped(entry.get("description", "")),
            )
            for key, entry in properties.items()
        ]
        parts.append("\n" + table(("key", "type", "meaning"), rows))
    return "\n".join(parts)


def _type(schema: Schema) -> str:
    """Return the type of a value in words, with links to the objects."""
    if reference := schema.get("$ref"):
        name = reference.rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if options := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(map(_type, options)))
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}{_bounds(schema)}"
    if "enum" in schema:
        return ", ".join(f"`{entry}`" for entry in schema["enum"])
    return f"{kind}{_bounds(schema)}"


BOUNDS = {
    "minimum": "at least",
    "maximum": "at most",
    "exclusiveMinimum": "above",
    "minLength": "from",
    "maxLength": "up to",
    "maxItems": "up to",
}


def _bounds(schema: Schema) -> str:
    words = list(_bound_words(schema))
    return f" ({', '.join(words)})" if words else ""


def _bound_words(schema: Schema) -> Iterator[str]:
    for key, words in BOUNDS.items():
        if key in schema:
            unit = " characters" if "Length" in key else " entries" if "Items" in key else ""
            yield f"{words} {schema[key]}{unit}"
