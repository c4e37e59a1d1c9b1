r"""Progress lines of known trainers, as expressions, and the lines that only mention a step.

The forms are those that the trainers' own loggers write: Megatron-LM's `training_log`, NeMo and
Lightning progress bars, fairseq's `progress_bar`, MMEngine's `LogProcessor`, timm and torchvision
`MetricLogger`, composer's `ConsoleLogger`, torchtitan's `MetricsProcessor`, DeepSpeed's
`_report_progress` and `ThroughputTimer`, MaxText's `metric_logger`, tqdm, tqdm-loggable, Keras and
Ultralytics bars, and the dictionaries of the Hugging Face Trainer. Groups of an expression:
`number` is the step, or the batch of an epoch where `epoch` and `total` are there too; `share` is
an epoch with a fraction; `thousands` is the unit of a number in thousands.
"""

from __future__ import annotations

import re

__all__ = ["GENERIC_FORMS", "KNOWN_FORMS", "PROGRESS_BAR", "is_mention"]

PROGRESS_BAR = "tqdm"  # programs that prepare data show such a bar too
GENERIC_FORMS = frozenset((PROGRESS_BAR, "JSON", "key and value", "plain step", "epoch"))

_GAP = r"[ \t]*"
_START = r"(?:\b|\x1b\[[\d;]*m)"  # a colour code ends in a letter, which hides the start of a word
_NUMBER = r"(?P<number>\d{1,3}(?:,\d{3})+|\d{1,12})"
_EPOCH = r"(?P<epoch>\d{1,9})"
_TOTAL = r"(?P<total>\d{1,9})"
_BAR = r"\d{1,3}%[^\w\n]*"  # a percentage and the bar, which may consist of any signs
_UNIT = r"(?:steps?|iter(?:ation)?s?|it|batch(?:es)?|(?:num_)?updates?)"
_KEY = (
    rf"{_START}(?:(?:global|train(?:ing)?|opt(?:imizer)?|current|local)[ _/]?)?{_UNIT}\b['\"]?"
    rf"{_GAP}(?:[:=#@]|is\b)?{_GAP}[\[(]?#?{_GAP}{_NUMBER}(?:[^\w.,\n]|[.,][^\d\n]|[.,]?$)"
)
_METRIC = (
    r"(?:\b(?:[\w./-]*loss\w*|lr|\w*learning[ _]?rate\w*|grad[ _]?norm|gnorm|ppl|\w*perplexity|mfu"
    r"|eta|[tiw]ps|ups|\w*tflops?[\w/]*|\w*throughput\w*|\w*reward\w*|\w*acc(?:uracy)?|speed|\w*time"
    r"|elapsed|\w*(?:samples|tokens|seq)\w*/s\w*|\w*per_?sec(?:ond)?\w*)\b['\"]?"
    rf"{_GAP}(?:\([^)\n]{{1,12}}\))?{_GAP}(?:[:=|]|is\b)?{_GAP}['\"\[({{]*[-+]?(?:\.?\d|nan|inf)"
    rf"|\d{_GAP}(?:it/s|s/it|samples?/s|tok(?:en)?s?/s|tks/s|steps?/s|ms\b|sec\b|seconds?\b))"
)
_STEP_KEY = (
    r"['\"](?:\w{1,20}/)?_?(?:(?:global|current)_?steps?|steps?|iter(?:ation)?|num_updates)"
    rf"(?:/max_steps)?['\"]{_GAP}:{_GAP}['\"]?{_NUMBER}\b"
)

# Forms of one trainer first, forms that any program could write last.
KNOWN_FORMS: tuple[tuple[str, str], ...] = tuple(
    (name, f"(?i){expression}")
    for name, expression in (
        ("NeMo", rf"{_START}training epoch {_EPOCH}, iteration {_NUMBER}/{_TOTAL} "),
        ("Megatron-LM", rf"{_START}iteration[ \t]+{_NUMBER}/{_GAP}\d+{_GAP}(?:\||\r?$)"),
        (
            "Lightning",
            rf"{_START}epoch[ \t]+{_EPOCH}(?:/\d+)?[: \t]+(?:{_BAR}|[^\w\n]+){_NUMBER}/"
            rf"(?:{_TOTAL}|\?){_GAP}(?:\[|\d+:\d\d)",
        ),
        (
            "fairseq",
            rf"{_START}epoch[ \t]+{_EPOCH}:?{_GAP}\|?[ \t]+{_NUMBER} ?/ ?{_TOTAL}\b[^\n]*loss",
        ),
        ("MMEngine", rf"{_START}iter(?:\(train\))?:?{_GAP}\[{_GAP}{_NUMBER}/{_GAP}\d+\]"),
        (
            "MMEngine, timm, torchvision",
            rf"{_START}(?:train(?:ing)?[ \t]+)?(?:epoch|train)(?:\(train\))?:?{_GAP}\[?{_GAP}"
            rf"{_EPOCH}(?:{_GAP}/{_GAP}\d+)?{_GAP}(?:\({_GAP}\d+%\))?{_GAP}\]?,?{_GAP}"
            rf"[\[(]{_GAP}{_NUMBER}{_GAP}/{_GAP}{_TOTAL}",
        ),
        ("composer", rf"\[batch={_NUMBER}/\d+\]"),
        ("composer", rf"\btrain\b[^\n]*\bep\d+-ba{_NUMBER}\b"),
        ("MaxText", rf"{_START}completed step: {_NUMBER}, seconds:"),
        (
            "tqdm-loggable",
            rf"progress on:{_GAP}train\w*[ \t]+(?P<number>[\d.]+)(?P<thousands>k?)it/",
        ),
        (
            "DeepSpeed",
            rf"(?:\b(?:global_)?step=|stop\] \d+/){_NUMBER},{_GAP}(?:skipped=|\w*samplespersec=)",
        ),
        (
            "Ultralytics",
            rf"^{_GAP}{_EPOCH}/\d+[ \t]+[\d.]+G[ \t][^\n%]*:{_GAP}{_BAR}{_NUMBER}/{_TOTAL}\b",
        ),
        (
            "Keras",
            rf"^{_GAP}{_NUMBER}/\d+[ \t]+(?:\[[=>.]{{5,}}\]|[\x80-\xff]{{9,}}){_GAP}(?:- |\d)",
        ),
        (PROGRESS_BAR, rf"\d{{1,3}}% ?\|[^|\n]*\|{_GAP}{_NUMBER}/\d+{_GAP}\["),
        (PROGRESS_BAR, rf"\b{_NUMBER}it \[\d"),
        ("JSON", rf"{_STEP_KEY}[^\n]*{_METRIC}"),
        ("JSON", rf"\{{[^\n]*{_METRIC}[^\n]*{_STEP_KEY}"),
        (
            "Hugging Face Trainer",
            r"\{[^{}\n]*'loss': [^{}\n]*'epoch': '?(?P<share>\d{1,6}(?:\.\d+)?)",
        ),
        ("key and value", rf"{_KEY}[^\n]*{_METRIC}"),
        ("key and value", rf"{_METRIC}[^\n]*{_KEY}"),
        (
            "plain step",
            rf"(?:^|[\])}}|:>-][ \t]+|\t|\binfo[ \t]+)(?:train(?:ing)?[ \t]+|global[ _])?"
            rf"(?:step|iter(?:ation)?|batch){_GAP}[:=#]?{_GAP}\[?{_NUMBER}"
            rf"(?:{_GAP}(?:/|of){_GAP}\d+)?\]?{_GAP}[.,:]?{_GAP}(?:done|finished|completed?|ok)?\W*$",
        ),
        (
            "epoch",
            rf"{_START}epoch{_GAP}[:=#]?{_GAP}\[?{_GAP}{_NUMBER}\b[^\n]*{_METRIC}",
        ),
    )
)

_NOT_IN_PATH = r"(?<![\w/.-])(?:{})(?![\w/-]|\.\w)"
_MENTION = re.compile(  # a metric may have such a name
    _NOT_IN_PATH.format(
        r"load(?:ed|ing)|sav(?:ed|ing)|restor\w+|resum\w+|checkpoint(?:s|ing)?|ckpt|errors?"
        r"|exceptions?|fail\w*|abort\w*|retry\w*|retries|attempt\w*|time[d -]?out\w*|traceback"
        r"|seqnum|roll(?:ing|ed)?[ -]?back|exit\w*|kill\w*|terminat\w+|stopp\w+|namespace|config\w*"
        r"|heartbeat|h[au]ng|stuck|stall\w*|skipping|rerun|unexpected|invalid|diverged|nccl"
        r"|valid on"
    ).encode()
    + rb"(?!['\"]?\s*[:=]\s*['\"]?[-\d.])",
    re.IGNORECASE,
)
_PREPARATION = re.compile(
    _NOT_IN_PATH.format(
        r"val(?:id\w*)?|eval\w*|test(?:ing)?|predict\w*|infer\w*|sanity|load\w*|download\w*|fetch\w*"
        r"|map|filter\w*|tokeniz\w*|preprocess\w*|prepar\w*|pack(?:ing)?|generat\w*|captur\w*"
        r"|compil\w*|convert\w*|extract\w*|copy\w*|upload\w*|saving|shard\w*|check\w*|index\w*"
        r"|build\w*|creat\w*|initializ\w*|quantiz\w*|merg\w*|warm\w*|files?"
    ).encode(),
    re.IGNORECASE,
)
_LIMIT = re.compile(
    rb"(?<![\w/])(?:max|total|num(?!_updates)|number of|every|per|from|to|until|before|since|at"
    rb"|last|after|on|in|for|each|next|resume|save|log|logging|eval|warm ?up"
    rb"|accumulation)[ _-]+(?:the )?"
    rb"(?:(?:global|training|train|optimi[sz]\w+|accumulation)[ _-]+)*"
    rb"(?:steps?|iter(?:ation)?s?|batch(?:es)?|updates?|epochs?)\W*$"
    rb"|train(?:ing)?[ _]steps\W*$",
    re.IGNORECASE,
)


def is_mention(line: bytes, number_start: int) -> bool:
    """Return whether a line only mentions a step, or reports something else than training.

    Parameters
    ----------
    line : bytes
    number_start : int
        Offset of the number in the line.

    Examples
    --------
    >>> is_mention(b"loaded checkpoint at iteration 1000", 31), is_mention(b"step 5 loss 2", 5)
    (True, False)
    """
    head = line[:number_start]
    return bool(_MENTION.search(line) or _PREPARATION.search(head) or _LIMIT.search(head))
