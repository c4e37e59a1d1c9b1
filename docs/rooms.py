"""Draw docs/rooms.svg, the packages of the code and their imports: `python docs/rooms.py`.

Rows follow the layers that import-linter enforces, columns and words stand in `ROOMS`. An arrow is
drawn where a package imports another one, unless a path through other packages implies it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from forewarn.pipelines.rendering.box_diagram import Box, draw_boxes
from forewarn.pipelines.rendering.svg_figures import COLOURS, inline_svg

ROOT = Path(__file__).parents[1]
LAYERS = ("dags", "pipelines", "response", "evaluation", "models", "features")

# Package -> its column and a few words. A new package needs a line here.
ROOMS: dict[str, tuple[float, str]] = {
    "dags": (1, "schedule, order"),
    "pipelines/cli": (2.5, "the commands"),
    "pipelines/scheduled_tasks": (1, "what a DAG calls"),
    "pipelines/dag_options": (0, "what DAGs share"),
    "pipelines/studies": (4, "methods compared"),
    "pipelines/sandbox": (3, "demo, simulated data"),
    "pipelines/training": (1, "train, retrain, MLflow"),
    "pipelines/recovery": (5, "what interruptions cost"),
    "pipelines/inspection": (3, "checks of machines"),
    "pipelines/console": (2, "pages for people on call"),
    "pipelines/incidents": (0, "findings to drains"),
    "pipelines/backtest": (1, "tests on the past"),
    "pipelines/at_risk": (2, "daily list, review"),
    "pipelines/doctor": (3, "checks records"),
    "pipelines/detection": (4, "fit, run, watch"),
    "pipelines/diagnosis": (5, "finds the culprit"),
    "pipelines/prediction_job": (2, "records + settings"),
    "pipelines/collector": (0, "receives batches"),
    "pipelines/ingest": (0, "rows become records"),
    "pipelines/agent": (1, "reads a host, sends"),
    "pipelines/rendering": (4, "pages, plots"),
    "pipelines/serving": (0, "HTTP limits, tokens"),
    "pipelines/metrics": (1, "names, values, files"),
    "pipelines/storage": (2, "files, registry"),
    "pipelines/config": (1, "the TOML file"),
    "pipelines/runtime": (3, "clock, terminal, alerts"),
    "response/recovery": (4, "lost time, checkpoints"),
    "response/inspection": (5, "plan, acceptance"),
    "response/repair": (3, "cases, offenders"),
    "response/replay": (2, "a policy on the past"),
    "response/score": (1, "hours saved and lost"),
    "response/follow_up": (2, "release, outcome"),
    "response/decision": (2, "steps within limits"),
    "response/policy": (1, "severity, steps"),
    "response/grouping": (3, "shared events"),
    "response/state": (2, "values of decisions"),
    "evaluation": (2, "bootstrap"),
    "evaluation/prediction": (1, "backtest, metrics"),
    "evaluation/simulation": (3, "simulated fleet, tasks"),
    "evaluation/detection": (4, "metrics of verdicts"),
    "models": (2, "shared by both"),
    "models/prediction": (1, "failing GPUs"),
    "models/detection": (4, "faulty machines"),
    "models/diagnosis": (5, "verdicts on jobs"),
    "models/inspection": (3, "judged results"),
    "features/diagnosis": (5, "dumps, logs, stacks"),
    "features": (2, "Xids, durations, errors"),
    "features/telemetry": (0, "parsers of host data"),
    "features/records": (2, "checked tables"),
    "features/prediction": (1, "instances, labels"),
    "features/detection": (4, "samples on one clock"),
    "features/inspection": (3, "checks, results"),
}
WIDTH, COLUMN, ROW, LEFT = 135.0, 145.0, 54.0, 90.0  # points
TINTS = ("#eef1f6", "#ffffff")


def rooms() -> list[str]:
    """Return all packages: each layer with modules of its own, and its sub-packages.

    In `pipelines`, a module that lies in no sub-package is a package of its own here.
    """
    return sorted({room_of(path) for path in modules() if holds_code(path)})


def modules() -> Iterator[Path]:
    """Yield all our modules, relative to the repository."""
    for layer in LAYERS:
        for path in (ROOT / layer).rglob("*.py"):
            yield path.relative_to(ROOT)


def holds_code(path: Path) -> bool:
    """Tell whether a module makes its folder a package of the drawing."""
    return len(path.parts) > 2 or path.name != "__init__.py"


def room_of(path: Path) -> str:
    """Return the package of a module.

    >>> room_of(Path("models/prediction/trees/gbdt.py")), room_of(Path("models/finite_json.py"))
    ('models/prediction', 'models')
    """
    layer, *inside = path.with_suffix("").parts
    if (ROOT / layer / inside[0]).is_dir() or layer == "pipelines":
        return f"{layer}/{inside[0]}"
    return layer


def imports() -> set[tuple[str, str]]:
    """Return (package, package that it imports), wherever in a module the import stands."""
    pairs = set()
    for path in modules():
        for name in imported_names(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if target := imported_room(name):
                pairs.add((room_of(path), target))
    return {(room, target) for room, target in pairs if room != target}


def imported_names(tree: ast.Module) -> Iterator[str]:
    """Yield dotted names of what a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def imported_room(name: str) -> str | None:
    """Return the package of a dotted name such as `forewarn.models.finite_json.dumps`."""
    top, *parts = name.split(".")
    if top != "forewarn" or len(parts) < 2:
        return None
    return room_of(Path(*parts))


def arrows(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Leave out each import that a path through other packages implies.

    >>> sorted(arrows({("a", "b"), ("b", "c"), ("a", "c")}))
    [('a', 'b'), ('b', 'c')]
    """
    direct: dict[str, set[str]] = {}
    for room, target in pairs:
        direct.setdefault(room, set()).add(target)
    return {
        (room, target)
        for room, target in pairs
        if not any(target in reached(direct, other) for other in direct[room] - {target})
    }


def reached(direct: Mapping[str, set[str]], room: str) -> set[str]:
    """Return all packages that arrows reach from a package."""
    seen: set[str] = set()
    ahead = [room]
    while ahead:
        new = direct.get(ahead.pop(), set()) - seen
        seen |= new
        ahead += new
    return seen


def rows() -> list[list[str]]:
    """Return the packages from top to bottom; a contract may put several into one row."""
    inner = []
    for layer in ("evaluation", "models"):
        inner += [[room for room in ROOMS if room.startswith(f"{layer}/")], [layer]]
    inner += [
        [f"features/{area}" for area in ("prediction", "inspection", "detection", "diagnosis")]
    ]
    inner += [["features/records", "features/telemetry"], ["features"]]
    stacks = [*contract("pipelines"), *contract("response"), *inner]
    drawn = [[room for room in row if room in ROOMS] for row in (["dags"], *stacks)]
    return [row for row in drawn if row]


def contract(layer: str) -> Iterator[list[str]]:
    """Yield the rows of the import contract inside a layer, from top to bottom."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    for one in linter["contracts"]:
        if one.get("containers") == [f"forewarn.{layer}"]:
            for row in one["layers"]:
                yield [f"{layer}/{name.strip(' ()')}" for name in re.split("[:|]", row)]


def draw() -> str:
    """Return the drawing; a package without a line in `ROOMS` raises a KeyError with its name."""
    boxes = {
        room: Box(LEFT + ROOMS[room][0] * COLUMN, number * ROW + 13.0, title, ROOMS[room][1])
        for number, row in enumerate(rows())
        for room in row
        for title in [room.split("/")[-1]]
    }
    pairs = sorted(arrows(imports()))
    figure = draw_boxes(
        [boxes[room] for room in rooms()],
        [(boxes[room], boxes[target]) for room, target in pairs],
        width=WIDTH,
        right=0.6 * WIDTH,
    )
    layers = [row[0].split("/")[0] for row in rows()]
    for number, layer in enumerate(dict.fromkeys(layers)):
        top, bottom = (ROW * (layers.index(layer) + n) + 4.0 for n in (0, layers.count(layer)))
        figure.axes[0].axhspan(top, bottom, color=TINTS[number % 2], zorder=0)
        figure.axes[0].text(10.0, (top + bottom) / 2.0, layer, color=COLOURS["muted"])
    description = "Each arrow is an import."
    return inline_svg(figure, title="The packages of the code", description=description) + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "rooms.svg").write_text(draw(), encoding="utf-8")
