from __future__ import annotations

from threading import get_ident

from forewarn.features.threads import map_threads


def test_one_thread_runs_in_caller() -> None:
    assert map_threads(lambda _: get_ident(), range(3), threads=1) == [get_ident()] * 3
    assert get_ident() not in map_threads(lambda _: get_ident(), range(3), threads=2)
