"""Lines of trainers: what each prints at its start, after a step and around a checkpoint.

The forms are those of the programs: Megatron-LM 0.4 to 0.13, transformers 4.40 to 4.56, NeMo 1 and 2
on Lightning, DeepSpeed 0.10 to 0.17 and torchtitan 0.1. Fields are those of `LineWriter`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["TRAINERS", "Trainer"]


@dataclass(frozen=True, slots=True)
class Trainer:
    """Lines of a trainer; each is a template.

    Attributes
    ----------
    speaker : str
        The ranks that print steps: the first, the last, or all.
    start, step, save_begins, save_ends : tuple of str
        The lines of each event, one after another. Only the speaker of steps prints `step`; the
        other lines are the first rank's, or everyone's where all speak.
    progress : str
        A progress bar on stderr, printed before the lines of each step.
    is_plain : bool
        A made-up form without harmless lines, for jobs whose logs do not matter. It is never drawn.
    """

    speaker: Literal["first", "last", "all"]
    start: tuple[str, ...]
    step: tuple[str, ...]
    save_begins: tuple[str, ...]
    save_ends: tuple[str, ...]
    progress: str = ""
    is_plain: bool = False


_DEEPSPEED = "[{time:%Y-%m-%d %H:%M:%S},{ms}] [INFO] "
_TITAN = "[titan] {time:%Y-%m-%d %H:%M:%S},{ms} - root - INFO - "
_TRANSFORMERS = "[INFO|{file}] {time:%Y-%m-%d %H:%M:%S},{ms} >> "
_BAR = "{percent:3d}%|{bar}| {step}/{steps} [{elapsed}<{left}, {took:5.2f}s/it"

_PLAIN = "[{time:%Y-%m-%d %H:%M:%S}.{ms}] INFO "

TRAINERS = {
    "plain": Trainer(
        "all",
        (_PLAIN + "starting training, compiling the model",),
        (_PLAIN + "step {step} loss {loss:.4f} lr 0.0003",),
        (_PLAIN + "saving checkpoint at iteration {step}",),
        (_PLAIN + "successfully saved checkpoint from iteration {step}",),
        is_plain=True,
    ),
    "megatron": Trainer(
        "last",
        (
            "using world size: {ranks}, data-parallel size: {dp}, tensor-model-parallel size: {tp}, pipeline-model-parallel size: {pp}",
            "setting random seeds to 1234 ...",
            "> building train, validation, and test datasets for GPT ...",
            "[after dataloaders are built] datetime: {time:%Y-%m-%d %H:%M:%S}",
            "training ...",
            "[before the start of training step] datetime: {time:%Y-%m-%d %H:%M:%S}",
        ),
        (
            " [{time:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/{steps:8d} | consumed samples: {samples:12d} | elapsed time per iteration (ms): {took_ms:.1f} | throughput per GPU (TFLOP/s/GPU): {tflops:.1f} | learning rate: {rate:.6E} | global batch size: {batch:5d} | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {norm:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |",
        ),
        ("saving checkpoint at iteration {step:7d} to /checkpoints/llm in torch_dist format",),
        ("  successfully saved checkpoint from iteration {step:7d} to /checkpoints/llm",),
    ),
    "transformers": Trainer(
        "first",
        (
            _TRANSFORMERS.replace("{file}", "trainer.py:2414") + "***** Running training *****",
            _TRANSFORMERS.replace("{file}", "trainer.py:2415") + "  Num examples = 1,203,712",
            _TRANSFORMERS.replace("{file}", "trainer.py:2421")
            + "  Total optimization steps = {steps:,}",
        ),
        (
            "{{'loss': {loss:.4f}, 'grad_norm': {norm:.8f}, 'learning_rate': {rate:.6g}, 'epoch': {epoch:.2f}}}",
        ),
        (
            _TRANSFORMERS.replace("{file}", "trainer.py:3993")
            + "Saving model checkpoint to ./output/checkpoint-{step}",
            _TRANSFORMERS.replace("{file}", "configuration_utils.py:423")
            + "Configuration saved in ./output/checkpoint-{step}/config.json",
        ),
        (
            _TRANSFORMERS.replace("{file}", "modeling_utils.py:3042")
            + "The model is bigger than the maximum size per checkpoint (5GB) and is going to be split in 4 checkpoint shards.",
            _TRANSFORMERS.replace("{file}", "tokenization_utils_base.py:2500")
            + "tokenizer config file saved in ./output/checkpoint-{step}/tokenizer_config.json",
        ),
        progress="\r" + _BAR + "]",
    ),
    "nemo-bar": Trainer(
        "first",
        (
            "GPU available: True (cuda), used: True",
            "[NeMo I {time:%Y-%m-%d %H:%M:%S} megatron_init:{n}] Rank {rank} has data parallel group : [0]",
            "  | Name  | Type        | Params | Mode ",
        ),
        (
            "Epoch 0: "
            + _BAR
            + ", v_num=, reduced_train_loss={loss:.3f}, global_step={step}.0, consumed_samples={samples}.0]",
        ),
        (
            "[NeMo I {time:%Y-%m-%d %H:%M:%S} nemo_model_checkpoint:{n}] Checkpoint save for step {step} started at {epoch_seconds:.6f}.",
        ),
        (
            "[NeMo I {time:%Y-%m-%d %H:%M:%S} nemo_model_checkpoint:{n}] Async checkpoint save for step {step} (/results/checkpoints/step={step}.ckpt) finalized successfully.",
        ),
    ),
    "nemo": Trainer(
        "first",
        (
            "[NeMo I {time:%Y-%m-%d %H:%M:%S} nemo_logging:393] Rank {rank} has data parallel rank: 0",
            "[NeMo W {time:%Y-%m-%d %H:%M:%S} nemo_logging:405] There were no checkpoints found in checkpoint_dir or no checkpoint folder at checkpoint_dir :/results/checkpoints. Training from scratch.",
        ),
        (
            "Training epoch 0, iteration {step}/{steps} | lr: {rate:.4g} | global_batch_size: {batch} | global_step: {step} | reduced_train_loss: {loss:.3f} | train_step_timing in s: {took:.3f} | consumed_samples: {samples}",
        ),
        (
            "[NeMo I {time:%Y-%m-%d %H:%M:%S} nemo_logging:393] Global Checkpoint Save : Rank : 0 : Iteration : {step} : Start time : {epoch_seconds:.3f}s : Save duration: {took:.3f}s",
            "[NeMo I {time:%Y-%m-%d %H:%M:%S} nemo_logging:393] Scheduled async checkpoint save for /results/checkpoints/step={step}.ckpt",
        ),
        (
            "[NeMo I {time:%Y-%m-%d %H:%M:%S} nemo_logging:393] Async checkpoint save for step {step} (/results/checkpoints/step={step}.ckpt) finalized successfully.",
        ),
    ),
    "deepspeed": Trainer(
        "first",
        (
            _DEEPSPEED
            + "[comm.py:669:init_distributed] Initializing TorchBackend in DeepSpeed with backend nccl",
            _DEEPSPEED
            + "[logging.py:107:log_dist] [Rank 0] DeepSpeed info: version=0.16.4, git-hash=unknown, git-branch=unknown",
            _DEEPSPEED
            + "[logging.py:107:log_dist] [Rank 0] DeepSpeed Flops Profiler Enabled: False",
            _DEEPSPEED + "[config.py:1007:print]   dump_state ................... False",
        ),
        (
            _DEEPSPEED
            + "[logging.py:107:log_dist] [Rank 0] step={step}, skipped=0, lr=[{rate:.8g}], mom=[(0.9, 0.95)]",
            _DEEPSPEED
            + "[timer.py:264:stop] epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec={speed:.6f}, CurrSamplesPerSec={speed:.6f}, MemAllocated=22.31GB, MaxMemAllocated=61.04GB",
        ),
        (
            _DEEPSPEED
            + "[logging.py:107:log_dist] [Rank 0] [Torch] Checkpoint global_step{step} is about to be saved!",
            _DEEPSPEED
            + "[torch_checkpoint_engine.py:21:save] [Torch] Saving /checkpoints/llm/global_step{step}/mp_rank_00_model_states.pt...",
        ),
        (
            _DEEPSPEED
            + "[torch_checkpoint_engine.py:23:save] [Torch] Saved /checkpoints/llm/global_step{step}/mp_rank_00_model_states.pt.",
            _DEEPSPEED
            + "[torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint global_step{step} is ready now!",
        ),
    ),
    "torchtitan": Trainer(
        "all",
        (
            _TITAN + "Starting job: pretraining",
            _TITAN + "Building 3-D device mesh with ['pp', 'dp_shard', 'tp'], [{pp}, {dp}, {tp}]",
            _TITAN + "Training starts at step 1.",
        ),
        (
            _TITAN
            + "\x1b[31mstep: {step:2d}  \x1b[32mloss: {loss:7.4f}  \x1b[38;2;180;60;0mgrad_norm: {norm:7.4f}  \x1b[38;2;54;234;195mmemory: 61.43GiB(77.66%)  \x1b[34mtps: {tokens:,}  \x1b[36mtflops: {tflops:,.2f}  \x1b[35mmfu: {mfu:.2f}%\x1b[39m",
        ),
        (_TITAN + "Saving the checkpoint (or staging if async is enabled).",),
        (
            _TITAN + "[GC] Peforming periodical GC collection 0.02 seconds",
            _TITAN
            + "Finished saving the checkpoint (or staging if async is enabled)in {saved:.2f} seconds.",
        ),
    ),
}
