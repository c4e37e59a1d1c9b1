from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forewarn.pipelines.at_risk.at_risk_page import render_at_risk
from forewarn.pipelines.at_risk.channel_charts import Chart

AT = "2025-03-01T03:00:00Z"
VALID_UNTIL = pd.Timestamp("2025-03-02T02:50:00Z")
REASONS = [
    "ecc_corrected 41 per hour over 7d (peers 0.2) | rows_remapped +2 in 2d (peers 0) | "
    "earlier failures of the serial 1",
    "temperature_gpu 9.4 °C above what power_draw explains (peers 0.3)",
    "pcie_link_width 8 lanes (peers 16) | pcie_replays 230 per hour over 12h (peers 0)",
    "xid 63, 4 events in 3h, last 20 min ago | ecc_uncorrected +1 in 12h (peers 0)",
]
FLAGGED = [0.83, 0.41, 0.24]


def listed(n: int = 800, flagged: list[float] | None = None) -> pd.DataFrame:
    """Return a list of `n` GPUs, eight per machine: ranks 1 and 3 on node-0003, 2 on node-0057."""
    flagged = FLAGGED if flagged is None else flagged
    places = np.roll(np.arange(n), n // 2)
    for rank, place in enumerate([27, 459, 29]):
        here = int(np.flatnonzero(places == place % n)[0])
        places[[rank, here]] = places[[here, rank]]
    is_flagged = np.arange(n) < len(flagged)
    return pd.DataFrame(
        {
            "rank": np.arange(1, n + 1),
            "gpu_serial": [f"1324{100000 + 7 * i}" for i in range(n)],
            "machine_id": [f"node-{place // 8:04d}" for place in places],
            "slot": places % 8,
            "probability": [*flagged, *(0.05 / np.arange(1, n - len(flagged) + 1))],
            "flagged": is_flagged,
            "flagged_by": ["parallel+cascade", "parallel", ""] * (n // 3) + [""] * (n % 3),
            "reasons": [REASONS[i % 4] for i in range(n)],
            "window_end": VALID_UNTIL - pd.Timedelta(hours=24),
            "model_version": "gpu-failure 2025-02-28",
            "valid_until": VALID_UNTIL,
        }
    )


def left_out() -> pd.DataFrame:
    whole = [(f"S{i}", "node-0900", "stale") for i in range(8)]
    rest = [
        ("S100", "node-0003", "stale"),
        ("S101", "node-0005", "gap"),
        ("S102", "node-0006", "failed"),
        ("S103", "node-0901", "too new"),
    ]
    return pd.DataFrame([*whole, *rest], columns=["gpu_serial", "machine_id", "reason"])


def render(table: pd.DataFrame, unscored: pd.DataFrame | None = None, **changed: Any) -> str:
    arguments: dict[str, Any] = {
        "at": AT,
        "share": 0.003,
        "horizon_hours": 24.0,
        "model_version": "gpu-failure 2025-02-28",
        "n_flagged": int(table["flagged"].fillna(False).sum()),
    }
    unscored = left_out() if unscored is None else unscored
    return render_at_risk(table, unscored, **(arguments | changed))


VOID = {"meta", "br", "link", "img", "rect", "circle", "line"}


class Reader(HTMLParser):
    """Parser that checks that tags are balanced, and keeps text and ids."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [found["href"] or ""] if "href" in found else []
        assert tag != "th" or found.get("scope")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag
        self.text += " " if tag in ("td", "th", "b") else ""

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", Reader(page).text)


def test_headline_contains_list_numbers() -> None:
    text = text_of(render(listed()))
    assert "3 GPUs on 2 machines flagged" in text
    assert "Act now: 1 GPU is more likely than not to fail." in text
    # 1 - 0.17 x 0.59 x 0.76 = 0.92; 0.83 + 0.41 + 0.24 = 1.48
    assert "At least one of these 3 fails by 2 March, 02:50 UTC with probability 92 %" in text
    assert (
        "Draining both machines takes 17 GPUs out of service" in text
    )  # one of them is not scored
    assert "800 GPUs scored" in text
    assert "10 without data" in text


def test_machine_with_most_expected_failures_is_first() -> None:
    table = listed(flagged=[0.5, 0.9, 0.46])  # ranks 1 and 3 share a machine
    page = render(table)
    assert re.findall(r"<h3><bdi>(.*?)</bdi>", page) == ["node-0003", "node-0057"]
    assert "2 of 9 GPUs flagged, 1.0 expected to fail" in text_of(page)
    other = render(listed(flagged=[0.2, 0.9, 0.2]))
    assert re.findall(r"<h3><bdi>(.*?)</bdi>", other) == ["node-0057", "node-0003"]


def test_flagged_gpu_details_are_shown() -> None:
    text = text_of(render(listed()))
    assert "83 % probability of failure GPU 3 · serial 1324100000" in text
    assert "ecc_corrected 41 per hour over 7d (peers 0.2) rows_remapped +2 in 2d" in text
    assert "rank 1, flagged by both ensembles, prediction valid until 2 March, 02:50 UTC" in text
    assert "nvidia-smi -q -d ECC,ROW_REMAPPER" in text


def test_other_telemetry_has_no_commands() -> None:
    page = render(listed(30).assign(reasons="vibration 41 (peers 38) | volt 170"))
    assert "Check the components named in its reasons." in text_of(page)
    assert "vibration 41 (peers 38)" in page
    assert "<code>" not in page


def test_hostile_names_are_escaped() -> None:
    hostile = "<script>alert(1)</script>\u202e"
    table = listed(40)
    for column in ("gpu_serial", "machine_id", "reasons", "flagged_by", "model_version"):
        table[column] = [f'{hostile}"{i}' for i in range(len(table))]
    unscored = left_out().assign(gpu_serial=hostile, machine_id=hostile, reason=hostile)
    page = render(table, unscored, model_version=hostile, at=hostile)
    assert "script" not in Reader(page).tags
    assert "\u202e" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\ufffd&#34;0" in page


def test_commands_contain_no_external_text() -> None:
    table = listed().assign(gpu_serial="$(reboot)", machine_id="`reboot`")
    commands = re.findall(r"<code>(.*?)</code>", render(table))
    assert commands
    assert not [command for command in commands if "reboot" in command]


def test_page_is_self_contained() -> None:
    page = render(listed())
    assert "http://" not in page
    assert "https://" not in page
    assert not {"script", "link", "img", "iframe"} & set(Reader(page).tags)
    assert {link for link in Reader(page).links if not link.startswith("#")} == {
        "at_risk.csv",
        "unscored.csv",
    }


def test_page_is_deterministic() -> None:
    table, unscored = listed(), left_out()
    shuffled = table.sample(frac=1.0, random_state=1)
    again = render(shuffled, unscored.sample(frac=1.0, random_state=2))
    assert render(table, unscored) == again


def test_arguments_are_not_mutated() -> None:
    table, unscored = listed(40), left_out()
    kept = table.copy(deep=True), unscored.copy(deep=True)
    render(table, unscored)
    pd.testing.assert_frame_equal(table, kept[0])
    pd.testing.assert_frame_equal(unscored, kept[1])


def test_links_have_targets() -> None:
    found = Reader(render(listed()))
    assert len(found.ids) == len(set(found.ids))
    jumps = [link[1:] for link in found.links if link.startswith("#")]
    assert jumps == ["m1", "m2"]
    assert set(jumps) <= set(found.ids)


def test_long_list_is_truncated() -> None:
    table = listed(20_000, [0.4] * 150)
    page = render(table, pd.concat([left_out()] * 5000, ignore_index=True))
    assert len(page) < 200_000
    assert page.count('<div class="gpu">') == 60
    assert "90 more flagged GPUs are in" in text_of(page)
    assert "150 GPUs on" in text_of(page)
    assert page.count("<tr>") < 70
    assert "All 20,000 scored GPUs" in text_of(page)


def test_many_unscored_machines_are_truncated() -> None:
    names = [f"node-{i:05d}" for i in range(500)]
    unscored = pd.DataFrame({"gpu_serial": names, "machine_id": names, "reason": "stale"})
    page = render(listed(), unscored)
    assert "node-00039" in page
    assert "node-00040" not in page
    assert "460 more GPUs" in text_of(page)


def test_empty_list_has_nothing_to_drain() -> None:
    text = text_of(render(listed(flagged=[]), left_out().head(0)))
    assert "No GPU is flagged Nothing to drain." in text
    assert "What to do, in this order" not in text
    assert "Next on the list" in text


def test_list_without_gpus_shows_no_data() -> None:
    text = text_of(render(listed().head(0)))
    assert "No data: no GPU could be scored" in text
    assert "All 12 known GPUs are unscored." in text
    assert "No data: there are no GPUs" in text_of(render(listed().head(0), left_out().head(0)))


def test_unscored_gpus_have_reasons_and_notes() -> None:
    text = text_of(render(listed()))
    assert "9 stale" in text
    assert "1 gap" in text
    assert "1 too new" in text
    assert "1 failed" in text
    assert (
        "Missing data does not mean healthy. The state of 10 GPUs without data is unknown" in text
    )
    assert "node-0003 stale the rest of the machine reports: this GPU may have fallen off" in text
    assert (
        "node-0900 stale no GPU of this machine reports: the machine or its agent is down 8 of 8"
        in text
    )


def test_rules_show_no_probability() -> None:
    text = text_of(render(listed().assign(probability=np.nan)))
    assert "Fixed rules flagged them" in text
    assert "Flagged by rules" in text
    assert "probability of failure" not in text
    assert not re.search(r"\d+ expected to fail", text)


def test_null_columns_are_accepted() -> None:
    table = listed(30)
    for column in set(table.columns) - {"gpu_serial", "flagged"}:
        table[column] = None
    unscored = left_out().assign(machine_id=None, reason=None, gpu_serial=None)
    text = text_of(render(table, unscored))
    assert "3 GPUs flagged" in text
    assert "Machine unknown" in text
    assert "12 no reason given" in text
    assert not re.search(r"\b(nan|None|NaT)\b", text)


def test_minimal_columns_are_accepted() -> None:
    text = text_of(render(listed(30)[["gpu_serial", "flagged"]], left_out()[["gpu_serial"]]))
    assert "3 GPUs flagged" in text
    assert "by 2 March, 03:00 UTC" not in text  # nothing is expected without a probability
    assert not re.search(r"\b(nan|None|NaT)\b", text)


def test_default_deadline_is_one_horizon() -> None:
    text = text_of(render(listed(30).drop(columns="valid_until")))
    assert "by 2 March, 03:00 UTC with probability" in text


@pytest.mark.parametrize("dtype", ["category", "string[pyarrow]", object])
def test_string_column_types_are_accepted(dtype: Any) -> None:
    columns = ["gpu_serial", "machine_id", "flagged_by", "reasons"]
    table = listed(30).astype(dict.fromkeys(columns, dtype))
    assert render(table) == render(listed(30))


def test_numeric_machine_names_are_accepted() -> None:
    table = listed(30).assign(machine_id=[7, 8, 7, *[9] * 27])
    unscored = left_out().assign(machine_id=7)
    text = text_of(render(table, unscored))
    assert "3 GPUs on 2 machines flagged" in text
    assert "2 of 14 GPUs flagged" in text


def test_wrong_number_of_flagged_rows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`n_flagged` must be .*\(3\), got 4"):
        render(listed(), n_flagged=4)


def test_flagged_gpu_has_charts() -> None:
    table, level = listed(), np.array([61.0, np.nan, 71.5])
    chart = Chart("temperature", "°C", "7 days", level, [level - 1.0], [(0.5, "Xid 63")])
    page = render(table, charts={table["gpu_serial"][0]: [chart, chart]})
    words = 'aria-label="temperature. The last 7 days: 60 to 72 °C; 1 event."'
    assert page.count(f'<svg class="picture" role="img" {words}') == 2
    assert "temperature 60 to 72 °C" in text_of(page)
    assert page.count(">Xid 63</text>") == 2
    assert "In the charts" in page
    assert "In the charts" not in render(table)
