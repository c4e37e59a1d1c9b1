from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines.progress_lines import (
    ProgressForm,
    ProgressLine,
    learn_progress,
)

TOTAL = 7_000
BAR = "━" * 12  # of terminals
# One line of each trainer: E is the epoch, N the step or batch, T the batches of an epoch.
STEPS = [
    ("Megatron-LM", " iteration {N:8d}/   90000 | consumed samples:  640 | lm loss: 3.1E+00 |"),
    ("Megatron-LM", "[2026-03-04 12:15:00] iteration {N:8d}/   90000 | elapsed time: 3.5 |"),
    ("Megatron-LM", "[2026-03-04 12:15:00.250] iteration {N}/  90000"),
    ("tqdm", "  7%|▊         | {N}/90000 [02:10<27:01,  3.10it/s]"),
    ("tqdm", "Training Progress:   7%|▊    | {N}/90000 [02:10<27:01, 41.20s/it]"),
    (
        "tqdm",
        "  6%|▋   | 3/90000 [02:00<28:00, 3.1it/s]\r  7%|▊   | {N}/90000 [02:10<27:01, 3.1it/s]",
    ),
    ("tqdm", "{N}it [02:10,  3.10it/s]"),
    ("tqdm", "Training Epoch: 1/2, step {N}/90 completed (loss: 2.5): 7%|▊ | {N}/90 [02:10<27:01]"),
    ("JSON", '{{"epoch": 1, "update": 0.07, "loss": "3.5", "num_updates": "{N}", "lr": "3e-4"}}'),
    ("JSON", '{{"step": {N}, "loss": 3.5}}'),
    ("JSON", '{{"train/loss": 3.5, "_step": {N}}}'),
    ("JSON", "{{'loss': 3.5, 'learning_rate': 3e-4, 'global_step': {N}, 'epoch': 0.7}}"),
    ("JSON", "{{'loss': 3.5, 'epoch': 0.7, 'global_step/max_steps': '{N}/90000'}}"),
    ("MMEngine", "03/04 12:15:00 - mmengine - INFO - Iter(train) [{N:6d}/90000]  lr: 3.0e-04"),
    ("MMEngine", "2026-03-04 12:15:00,250 - mmseg - INFO - Iter [{N}/90000]\tlr: 3.0e-04"),
    ("composer", "[batch={N}/90000]:"),
    ("composer", "Train time/batch: 3.5, ep0-ba{N}"),
    ("DeepSpeed", "[INFO] [logging.py:96:log_dist] [Rank 0] step={N}, skipped=3, lr=[3e-4]"),
    ("DeepSpeed", "epoch=0/micro_step=64/global_step={N}, RunningAvgSamplesPerSec=3.5"),
    ("DeepSpeed", "[INFO] [timer.py:181:stop] 0/{N}, SamplesPerSec=3.5"),
    ("MaxText", "completed step: {N}, seconds: 3.5, TFLOP/s/device: 41.0, loss: 3.5"),
    ("Keras", " {N}/90000 [==>...........] - ETA: 27:01 - loss: 3.5"),
    ("Keras", " {N}/90000 " + BAR + " 27:01 350ms/step - loss: 3.5"),
    ("key and value", "step: {N:2d}  loss:  3.5  grad_norm: 0.7  memory: 41.0GiB(64%)  tps: 9,100"),
    ("key and value", "\x1b[31mstep: {N}  \x1b[32mloss:  3.5  \x1b[39mgrad_norm:  0.7"),
    ("key and value", "steps: {N} loss: 3.5 iter time (s): 0.7 samples/sec: 41.0"),
    ("key and value", "iter {N}: loss 3.5, time 350.0ms, mfu 41.0%"),
    ("key and value", "step:{N} - actor/pg_loss:0.7 - timing_s/save_checkpoint:0.0 - actor/lr:0.0"),
    (
        "key and value",
        "[03/04 12:15:00 d2.utils.events]:  eta: 0:27:01  iter: {N}  total_loss: 3.5",
    ),
    ("key and value", "global step {N}, epoch: 1, batch: 4, loss: 3.5, speed: 0.7 step/s"),
    ("key and value", "loss: 3.5, learning_rate: 3e-04, global_step: {N}, interval_runtime: 0.7"),
    (
        "key and value",
        "{{ Epoch:[  1/  2], step:[{N:5d}/90000], loss: 3.5, per_step_time: 350ms }}",
    ),
    ("key and value", "Epoch [1/2], Step [{N}/90000], Loss: 3.5"),
    ("key and value", "Step #{N}\tLoss: 3.5"),
    ("key and value", "INFO:tensorflow:loss = 3.5, step = {N} (41.0 sec)"),
    ("key and value", "[INFO] [train.py:9] step={N} loss=3.5"),
    ("plain step", "[INFO] [train.py:9] step {N}"),
    ("plain step", "Iteration {N} of 90000 done."),
]
EPOCHS = [
    ("NeMo", "Training epoch {E}, iteration {N}/{T} | lr: 3e-04 | reduced_train_loss: 3.5"),
    ("Lightning", "Epoch {E}:   7%|▊    | {N}/{T} [00:10<02:10, 3.1it/s, v_num=0, train_loss=3.5]"),
    ("Lightning", "Epoch {E}: :   7%|▊    | {N}/{T} [00:10<02:10, reduced_train_loss=3.5]"),
    ("Lightning", "Epoch {E}/9 " + BAR + " {N}/{T} 0:00:10 • 0:02:10 3.1it/s v_num: 0"),
    ("fairseq", "| train_inner | epoch {E:03d}: {N:6d} / {T} loss=3.5, ppl=9.1, num_updates=640"),
    ("fairseq", "| epoch {E:3d} | {N:5d}/{T} batches | lr 5.00 | loss 3.5"),
    ("MMEngine, timm, torchvision", "INFO - Epoch(train)  [{E}][{N:4d}/{T}]  lr: 3.0e-04"),
    ("MMEngine, timm, torchvision", "INFO - Epoch [{E}][{N}/{T}]\tlr: 3.0e-04"),
    ("MMEngine, timm, torchvision", "Train: {E} [{N:4d}/{T} (  7%)]  Loss: 3.5 (3.5)"),
    ("MMEngine, timm, torchvision", "Train: [{E}/90][{N}/{T}]\teta 0:27:01 lr 0.1"),
    ("MMEngine, timm, torchvision", "Epoch: [{E}]  [{N:4d}/{T}]  eta: 0:27:01  loss: 3.5"),
    ("MMEngine, timm, torchvision", "Train Epoch: {E} [{N}/{T} (7%)]\tLoss: 3.5"),
    ("MMEngine, timm, torchvision", "Epoch:[{E}/19]({N}/{T}) loss:3.5 lr:0.0003"),
    (
        "Ultralytics",
        "      {E}/90      41.0G      1.2      0.7         12        640:   7%|▊  | {N}/{T} [00:10",
    ),
    (
        "Ultralytics",
        "      {E}/90      41.0G      1.2      0.7         12        640: 7% ━━── {N}/{T} 3.1it/s",
    ),
]
MENTIONS = [
    "loaded checkpoint at step 41200, loss 3.5",
    "successfully loaded checkpoint from /data/out [ t 1/8, p 1/1 ] at iteration 41200",
    "saving checkpoint at iteration   41200 to /data/out",
    "resuming from iteration 41200, lr 0.1",
    "restarting from step 41200 loss 3.5",
    "exiting program at iteration 41200",
    "validation loss at iteration 41200 | lm loss value: 3.5E+00 |",
    "RuntimeError: loss is nan at step 41200, loss=nan",
    "attempt 3 at step 41200 took 3.5 s",
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=41200, Timeout(ms)=9)",
    "  Total optimization steps = 41,200",
    "max_steps=41200 lr=0.1",
    "train_steps: 41200, learning_rate: 0.1",
    "warmup steps 200, lr 0.1",
    "Namespace(step=7, lr=0.1)",
    '{"config": {"step": 7, "lr": 0.1}}',
    "will log every 10 steps, lr=0.1",
    "global batch size 32, lr 0.1",
    "Loading checkpoint shards:  50%|█████     | 1/2 [00:10<00:10,  9.9s/it]",
    "Map (num_proc=8):  45%|████▌     | 450/1000 [00:01<00:02]",
    "Validation DataLoader 0:  45%|████▌     | 45/100 [00:01<00:02]",
    "Test:  [ 45/100]  eta: 0:01:00  loss: 3.5",
    "| epoch 003 | valid on 'valid' subset | loss 3.5 | num_updates 640",
    "slurmstepd: error: *** STEP 41200.0 ON node-3 CANCELLED AT 2026-03-04T12:15:00 ***",
    "time (ms) | forward: 652.4 | step: 1172.1",
    "rank 1, iteration #12: first rerun: unexpected result (nan != 3.5), loss 3.5",
]


@pytest.mark.parametrize(("name", "line"), STEPS)
@given(number=st.integers(0, 89_999), noise=st.sampled_from(["", "built index\n", *MENTIONS]))
@settings(max_examples=10)
def test_trainers_print_steps(name: str, line: str, number: int, noise: str) -> None:
    head = f"{noise}\n".encode()
    text = head + f"{line.format(N=number)}\n".encode()
    form = learn_progress(text)
    assert form.name == name
    assert form.search(text) == form.last(text) == ProgressLine(len(head), number)


@pytest.mark.parametrize(("name", "line"), EPOCHS)
@given(epoch=st.integers(0, 90), batch=st.integers(0, TOTAL - 1))
@settings(max_examples=10)
def test_trainers_print_epoch_and_batch(name: str, line: str, epoch: int, batch: int) -> None:
    text = f"{line.format(E=epoch, N=batch, T=TOTAL)}\n".encode()
    form = learn_progress(text)
    assert form.name == name
    assert form.search(text) == ProgressLine(0, epoch * TOTAL + batch)


@pytest.mark.parametrize(
    ("name", "line", "number"),
    [
        ("Hugging Face Trainer", "{'loss': 3.5, 'grad_norm': 0.7, 'epoch': 0.12}", 120_000),
        (
            "Hugging Face Trainer",
            "{'loss': '3.5', 'learning_rate': '3e-4', 'epoch': '2'}",
            2_000_000,
        ),
        ("tqdm-loggable", "Progress on:train 1.2kit/9.0kit rate:3.1it/s remaining:27:01", 1_200),
        ("tqdm-loggable", "Progress on:train 41.0it/9.0kit rate:3.1it/s remaining:27:01", 41),
        ("epoch", "[INFO] Epoch 7, Time 350.0s, Loss 3.5, LR 0.1", 7),
        ("key and value", "step 1,024/9,000 | loss: 3.5", 1_024),
    ],
)
def test_trainers_print_other_numbers(name: str, line: str, number: int) -> None:
    form = learn_progress(line.encode())
    assert (form.name, form.search(line.encode())) == (name, ProgressLine(0, number))


@pytest.mark.parametrize("line", MENTIONS)
def test_mentioned_step_is_no_progress(line: str) -> None:
    text = f"{line}\n".encode()
    assert not learn_progress(text).is_known
    form = learn_progress(b"step 7 loss 3.5\n")
    assert form.search(text) is form.last(text) is None


def test_unknown_form_finds_nothing() -> None:
    form = ProgressForm()
    assert not form.is_known
    assert form.search(b"step 7 loss 3.5") is form.last(b"step 7 loss 3.5") is None


@pytest.mark.parametrize("line", ["step {} loss 3.5", "Epoch 0: 7%|▊ | {}/900000 [00:10<02:10]"])
def test_search_respects_its_range(line: str) -> None:
    lines = [f"{line.format(n)}\nINFO pause\n".encode() for n in range(60_000)]
    text = b"".join(lines)
    form, middle = learn_progress(text), sum(map(len, lines[:30_000]))
    assert form.search(text) == ProgressLine(0, 0)
    assert form.search(text, middle) == ProgressLine(middle, 30_000)
    assert form.search(text, middle - len(b"INFO pause\n"), middle) is None
    assert form.last(text, middle) == ProgressLine(middle - len(lines[29_999]), 29_999)
    assert form.last(text) == ProgressLine(len(text) - len(lines[-1]), 59_999)


def test_last_line_precedes_long_silence() -> None:
    text = b"step 7 loss 3.5\n" + b"saving checkpoint at step 8 loss 3.5\n" * 20_000
    assert learn_progress(text).last(text) == ProgressLine(0, 7)


def test_bar_of_preparation_is_no_progress() -> None:
    bar = "".join(f"Packing rows {n:3d}%|██ | {n}/100 [00:10<00:10]\n" for n in range(100))
    steps = "".join(f"{{'loss': 3.5, 'epoch': {n / 100}}}\n" for n in range(20))
    bars = "".join(
        f" 7%|▊ | {n}/900 [00:10<00:10]{{'loss': 3.5, 'epoch': 0.7}}\n" for n in range(9)
    )
    assert learn_progress((bar + steps).encode()).name == "Hugging Face Trainer"
    assert learn_progress(bars.encode()).name == "tqdm"


def test_frequent_line_outweighs_single_step() -> None:
    text = "step 3 loss 3.5\n" + "".join(f"zorb {n} gave 0.{n}\n" for n in range(9))
    form = learn_progress(text.encode())
    assert form.name == "learned"
    assert form.last(text.encode()) == ProgressLine(len(text) - len("zorb 8 gave 0.8\n"), 8)


@given(st.binary(max_size=400))
def test_arbitrary_bytes_do_not_raise(text: bytes) -> None:
    form = learn_progress(text * 4)
    form.search(text)
    form.last(text)
