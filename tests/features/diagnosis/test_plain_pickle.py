"""Reading of plain pickles without unpickling."""

from __future__ import annotations

import contextlib
import pickle
import pickletools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.diagnosis.plain_pickle import (
    BrokenPickleError,
    ForbiddenOpcodeError,
    read_plain_pickle,
)

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text()
VALUES = st.recursive(
    SCALARS | st.tuples(SCALARS, SCALARS),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)
READ = {
    *("PROTO", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "SETITEM", "SETITEMS", "APPEND"),
    *("APPENDS", "TUPLE2", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2"),
    *("LONG1", "BINFLOAT", "BINUNICODE", "BINPUT", "BINGET", "LONG_BINPUT", "LONG_BINGET"),
}


@given(VALUES)
def test_round_trip_of_plain_values(value: object) -> None:
    data = pickle.dumps(value, protocol=2)
    assert repr(read_plain_pickle(data)) == repr(pickle.loads(data))  # repr: NaN


def test_memo_of_over_256_strings() -> None:
    texts = [f"text {i}" for i in range(300)]
    assert read_plain_pickle(pickle.dumps([texts, texts], protocol=2)) == [texts, texts]


@pytest.mark.parametrize(
    "opcode", [code for code in pickletools.opcodes if code.name not in READ], ids=lambda c: c.name
)
def test_forbidden_opcodes_are_named(opcode: pickletools.OpcodeInfo) -> None:
    data = b"\x80\x02" + opcode.code.encode("latin-1") + b"0" * 20
    with pytest.raises(ForbiddenOpcodeError, match=f"opcode {opcode.name} at byte 2"):
        read_plain_pickle(data)


class Bomb:
    """An object that runs code when unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return (exec, ("raise SystemExit('it ran')",))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_pickled_code_does_not_run(protocol: int) -> None:
    with pytest.raises((ForbiddenOpcodeError, BrokenPickleError)):
        read_plain_pickle(pickle.dumps({"entries": [Bomb()]}, protocol=protocol))


def test_truncated_pickle_raises() -> None:
    data = pickle.dumps({"a": [1, 2**40, -5, 3.5, None, True], "b": ("x", "y")}, protocol=2)
    for end in range(len(data)):
        with pytest.raises(BrokenPickleError):
            read_plain_pickle(data[:end])


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_arbitrary_bytes_raise_input_error(data: bytes) -> None:
    with contextlib.suppress(BrokenPickleError, ForbiddenOpcodeError):
        read_plain_pickle(b"\x80\x02" + data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02" + b"](" * 100_000,  # nested lists
        b"\x80\x02" + b"}(X\x01\x00\x00\x00a" * 100_000,
        b"\x80\x02NN\x86" + b"N\x86" * 100_000 + b".",  # nested pairs
    ],
)
def test_nesting_bomb_is_rejected(data: bytes) -> None:
    with pytest.raises(BrokenPickleError):
        read_plain_pickle(data)
