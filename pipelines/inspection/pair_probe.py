"""The part of a network check that runs on each machine: `python pair_probe.py NAME`.

It imports nothing of forewarn, so that any interpreter with PyTorch can run it. Each line of its
input is a JSON object of one test; it answers each with one JSON line, and ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from datetime import timedelta
from typing import Any, Final

__all__ = ["run_test"]

_GEMM_SIZE: Final = 512
_GEMM_ROUNDS: Final = 4
_MAX_TEST_SECONDS: Final = 600.0


def run_test(torch: Any, test: dict[str, Any]) -> dict[str, Any]:
    """Join a group of machines, multiply matrices, and exchange data with the others.

    Parameters
    ----------
    torch : module
    test : dict
        `rank`, `world`, `master`, `port`, `timeout` (seconds), `bytes`, `repeats`, `gpu`.

    Returns
    -------
    dict
        `seconds` of an all-gather, `clock` at its end, and `gemm_seconds`; with `error`, it failed.
    """
    dist = torch.distributed
    has_gpu = torch.cuda.is_available()
    device = "cuda" if has_gpu else "cpu"
    store = None
    try:
        if has_gpu:
            torch.cuda.set_device(int(test["gpu"]))
        timeout = timedelta(seconds=float(test["timeout"]))
        store = dist.TCPStore(
            test["master"], int(test["port"]), int(test["world"]), test["rank"] == 0, timeout
        )
        dist.init_process_group(
            "nccl" if has_gpu else "gloo",
            store=store,
            rank=int(test["rank"]),
            world_size=int(test["world"]),
            timeout=timeout,
        )
        seconds = _all_gather(torch, test, device)
        clock = time.time()  # all leave the last all-gather at about the same moment
        return {"seconds": seconds, "clock": clock, "gemm_seconds": _gemm(torch, device)}
    except Exception as error:  # whatever PyTorch raises, the pair has failed
        return {"error": str(error).strip().partition("\n")[0][:200] or type(error).__name__}
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        del store


def _all_gather(torch: Any, test: dict[str, Any], device: str) -> float:
    """Return the shortest time of an all-gather, whose content is compared.

    Other processes of a machine only make it longer.
    """
    n, rank = int(test["world"]), int(test["rank"])
    own = torch.full((int(test["bytes"]) // 4,), float(rank), device=device)
    others = [torch.empty_like(own) for _ in range(n)]
    times = []
    for _ in range(int(test["repeats"]) + 1):
        started = time.perf_counter()
        torch.distributed.all_gather(others, own)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    if any(not bool((other == float(number)).all()) for number, other in enumerate(others)):
        raise RuntimeError("the data that arrived differ from those that were sent")
    return min(times[1:])  # the first one opens connections


def _gemm(torch: Any, device: str) -> float:
    """Return the shortest time of a product of matrices, which is compared with its sum."""
    left = torch.ones((_GEMM_SIZE, _GEMM_SIZE), device=device)
    times = []
    for _ in range(_GEMM_ROUNDS):
        started = time.perf_counter()
        product = left @ left
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    if not bool((product == float(_GEMM_SIZE)).all()):
        raise RuntimeError("a product of matrices is wrong")
    return min(times)


def _main() -> None:
    warnings.simplefilter("ignore")
    try:
        import torch
        import torch.distributed  # a submodule that torch may lack
    except ImportError:
        _answer({"error": "PyTorch is not installed"})
        return
    torch.set_num_threads(1)
    if interface := (sys.argv[1] if len(sys.argv) > 1 else ""):
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
    _answer({"ready": torch.__version__, "gpus": torch.cuda.device_count()})
    for line in sys.stdin:
        test = json.loads(line)
        _answer({"test": test["test"], **run_test(torch, test)})


def _answer(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main()
