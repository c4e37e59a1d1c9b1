from __future__ import annotations

import os
import signal
import time

import pytest

from forewarn.pipelines.runtime.interruption import interruptible


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_block_and_closes_what_it_opened(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    closed = False
    with interruptible():
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
            pytest.fail("expected an interruption")
        finally:
            closed = True
    assert closed
    assert "stopped" in capsys.readouterr().err
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
