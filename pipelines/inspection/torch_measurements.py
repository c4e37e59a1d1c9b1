"""Measurements that need PyTorch: `python torch_measurements.py NAME`.

It imports nothing of forewarn, so that any interpreter with PyTorch can run it. It prints a JSON
object of slots and values, of what they depend on, or of the reason why it cannot run.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

__all__ = ["MEASUREMENTS", "NotRunError"]

Values = list[tuple[str | None, str]]

_GEMM_SIZE: Final = 8192
_CPU_GEMM_SIZE: Final = 1024
_COPY_BYTES: Final = 1 << 30
_STEPS: Final = 4
_SEED: Final = 20_250_501


class NotRunError(Exception):
    """A measurement that this host cannot make."""


def _devices(torch: Any) -> Iterator[tuple[str | None, str]]:
    """Yield slot and name of each GPU, or of the CPU."""
    if not torch.cuda.is_available():
        yield None, "cpu"
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        yield str(number), f"cuda:{number}"


def _gpus(torch: Any) -> Iterator[tuple[str, str]]:
    if not torch.cuda.is_available():
        raise NotRunError("PyTorch sees no GPU")
    yield from ((str(n), f"cuda:{n}") for n in range(torch.cuda.device_count()))


def _seconds(torch: Any, device: str, run: Callable[[], object], repeats: int = 5) -> float:
    """Return the shortest time of a few repeats, after one that warms up."""
    times = []
    for _ in range(repeats + 1):
        if device != "cpu":
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        run()
        if device != "cpu":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started)
    return min(times[1:])


def gemm(torch: Any) -> Values:
    """Multiply matrices of small integers, whose product is exact; return TFLOP/s, or -1."""
    values: Values = []
    for slot, device in _gpus(torch):
        n = _GEMM_SIZE
        numbers = torch.arange(n * n, device=device, dtype=torch.int64).reshape(n, n)
        # Integers up to 2 and sums below 2**24: exact in bfloat16 with float32 accumulation.
        left = ((numbers * 7919) % 3).to(torch.bfloat16)
        right = ((numbers * 6007) % 3).to(torch.bfloat16)
        product = (left.float() @ right.float().sum(dim=1, keepdim=True)).double()
        exact = left.double() @ right.double().sum(dim=1, keepdim=True)
        seconds = _seconds(torch, device, partial(torch.matmul, left, right))
        is_right = bool(torch.equal(product, exact))
        values.append((slot, f"{2.0 * n**3 / seconds / 1e12:.2f}" if is_right else "-1"))
    return values


def gpu_copy(torch: Any) -> Values:
    """Copy a gibibyte within each GPU's memory; return GB/s read and written, or -1."""
    values: Values = []
    for slot, device in _gpus(torch):
        source = torch.randint(0, 255, (_COPY_BYTES,), dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        seconds = _seconds(torch, device, partial(target.copy_, source))
        is_right = bool(torch.equal(source, target))
        values.append((slot, f"{2.0 * _COPY_BYTES / seconds / 1e9:.1f}" if is_right else "-1"))
    return values


def host_to_gpu(torch: Any) -> Values:
    """Copy a gibibyte of pinned memory to each GPU; return GB/s."""
    values: Values = []
    source = torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    for slot, device in _gpus(torch):
        target = torch.empty(_COPY_BYTES, dtype=torch.uint8, device=device)
        seconds = _seconds(
            torch,
            device,
            partial(target.copy_, source, non_blocking=True),
        )
        values.append((slot, f"{_COPY_BYTES / seconds / 1e9:.1f}"))
    return values


def training_step(torch: Any) -> Values:
    """Train a small network on fixed data; return a digest of all losses.

    Machines with equal hardware, driver and library have equal losses to the last bit. The steps
    are repeated, and a GPU that differs from itself has failed.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # sums in the same order, however many cores there are
    values: Values = []
    for slot, device in _devices(torch):
        digests = [_losses_digest(torch, device) for _ in range(3)]
        if len(set(digests)) > 1:
            raise RuntimeError(f"repeats of the same training differ on {device}")
        values.append((slot, digests[0]))
    return values


def _losses_digest(torch: Any, device: str) -> str:
    generator = torch.Generator().manual_seed(_SEED)
    layers = [
        (torch.rand((256, 256), generator=generator) - 0.5).to(device).requires_grad_()
        for _ in range(4)
    ]
    inputs = torch.rand((64, 256), generator=generator).to(device)
    losses = hashlib.sha256()
    for _ in range(_STEPS):
        hidden = inputs
        for layer in layers:
            hidden = torch.tanh(hidden @ layer)
        loss = (hidden - inputs).square().mean()
        for layer, gradient in zip(layers, torch.autograd.grad(loss, layers), strict=True):
            layer.data.sub_(gradient, alpha=0.1)
        losses.update(float(loss.item()).hex().encode())
    return losses.hexdigest()


def all_reduce(torch: Any) -> Values:
    """Sum 16 MiB over all GPUs, or over two processes without a GPU; return GB/s, or -1."""
    import torch.multiprocessing as processes

    n = torch.cuda.device_count() if torch.cuda.is_available() else 2
    if n < 2:
        raise NotRunError("there is one GPU, an all-reduce needs two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.NamedTemporaryFile() as file:
        processes.spawn(_all_reduce_rank, args=(n, port, file.name), nprocs=n)
        return [(None, file.read().decode())]


def _all_reduce_rank(rank: int, n: int, port: int, out: str) -> None:
    import torch
    import torch.distributed as dist

    device = f"cuda:{rank}" if torch.cuda.is_available() else "cpu"
    if device != "cpu":
        torch.cuda.set_device(device)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo" if device == "cpu" else "nccl",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=n,
    )
    values = torch.ones(1 << 22, device=device)
    seconds = _seconds(torch, device, lambda: dist.all_reduce(values.fill_(1.0)))
    is_right = bool((values == n).all())
    dist.destroy_process_group()
    if rank == 0:
        size = values.numel() * values.element_size()
        bandwidth = 2.0 * (n - 1) / n * size / seconds / 1e9
        with open(out, "w", encoding="ascii") as file:
            file.write(f"{bandwidth:.3f}" if is_right else "-1")


MEASUREMENTS: Final = {
    function.__name__: function
    for function in (all_reduce, gemm, gpu_copy, host_to_gpu, training_step)
}


def _main(name: str) -> dict[str, Any]:
    try:
        import torch
    except ImportError:
        return {"not_run": "PyTorch is not installed"}
    try:
        values = MEASUREMENTS[name](torch)
    except NotRunError as error:
        return {"not_run": str(error)}
    except Exception as error:  # a failing GPU shows as one of many exceptions of PyTorch
        return {"failed": str(error).strip().partition("\n")[0][:300]}
    versions = {"torch": torch.__version__, "machine": platform.machine()}
    if torch.cuda.is_available():
        versions |= {"gpu": torch.cuda.get_device_name(0), "cuda": str(torch.version.cuda)}
    return {"values": values, "versions": versions}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.stdout.write(json.dumps(_main(sys.argv[1])))
