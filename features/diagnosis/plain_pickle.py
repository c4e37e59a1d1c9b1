"""Reader for pickles of plain values that does not unpickle, so that no code can run.

NCCL's flight recorder writes such pickles. The reader accepts the 18 opcodes seen in its dumps and
five equally harmless ones (long memo indices, floats, single items). Opcodes that name a class or
call a function are rejected.
"""

from __future__ import annotations

import pickletools
import struct
from typing import Any

from forewarn.features.errors import InputError

__all__ = ["BrokenPickleError", "ForbiddenOpcodeError", "read_plain_pickle"]

_MAX_DEPTH = 64  # open containers; a dump has 5
_OPCODE_NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}


class ForbiddenOpcodeError(InputError):
    """A pickle that contains more than plain values."""


class BrokenPickleError(InputError):
    """Data that is truncated, is not a pickle, or is nested too deep."""


def read_plain_pickle(data: bytes) -> Any:
    """Read dicts, lists, pairs, strings, integers, floats, booleans and None.

    Parameters
    ----------
    data : bytes
        A pickle of protocol 2.

    Raises
    ------
    ForbiddenOpcodeError
        With the opcode and its byte offset.
    BrokenPickleError
        If the data is truncated or not a pickle.

    Examples
    --------
    >>> import pickle
    >>> read_plain_pickle(pickle.dumps({"a": [1, 2.5, None, (True, "b")], "c": -3}, protocol=2))
    {'a': [1, 2.5, None, (True, 'b')], 'c': -3}
    >>> read_plain_pickle(pickle.dumps(print, protocol=2))
    Traceback (most recent call last):
    ...
    forewarn.features.diagnosis.plain_pickle.ForbiddenOpcodeError: opcode GLOBAL at byte 2
    """
    try:
        return _read(data)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        if isinstance(error, InputError):
            raise
        raise BrokenPickleError(f"truncated or invalid pickle ({type(error).__name__})") from None


def _read(data: bytes) -> Any:
    """Run the opcodes, most frequent first: a dump of 2,000 entries has 300,000 of them."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    at = 0
    while True:
        code = data[at]
        at += 1
        if code == 0x68:  # BINGET
            stack.append(memo[data[at]])
            at += 1
        elif code == 0x28:  # MARK
            marks.append(len(stack))
            if len(marks) > _MAX_DEPTH:
                raise BrokenPickleError(f"values nested deeper than {_MAX_DEPTH}")
        elif code == 0x5D:  # EMPTY_LIST
            stack.append([])
        elif code == 0x65:  # APPENDS
            _close_list(stack, marks)
        elif code == 0x4B:  # BININT1
            stack.append(data[at])
            at += 1
        elif code == 0x6A:  # LONG_BINGET
            stack.append(memo[int.from_bytes(data[at : at + 4], "little")])
            at += 4
        elif code == 0x2E:  # STOP
            (value,) = stack
            return value
        else:
            at = _run_rare_opcode(code, data, at, stack, marks, memo)


def _close_list(stack: list[Any], marks: list[int]) -> None:
    bottom = marks.pop()
    values = stack[bottom:]
    del stack[bottom:]
    stack[-1].extend(values)


def _run_rare_opcode(
    code: int, data: bytes, at: int, stack: list[Any], marks: list[int], memo: dict[int, Any]
) -> int:
    """Run one of the less frequent opcodes and return the offset of the next one."""
    if code == 0x4D:  # BININT2
        stack.append(data[at] | data[at + 1] << 8)
        return at + 2
    if code in _CONSTANTS:
        stack.append(_CONSTANTS[code])
    elif code == 0x7D:  # EMPTY_DICT
        stack.append({})
    elif code == 0x75:  # SETITEMS
        _close_dict(stack, marks)
    elif code == 0x61:  # APPEND
        value = stack.pop()
        stack[-1].append(value)
    elif code == 0x73:  # SETITEM
        value, key = stack.pop(), stack.pop()
        stack[-1].update({key: value})
    elif code == 0x86:  # TUPLE2
        second, first = stack.pop(), stack.pop()
        if isinstance(first, tuple) or isinstance(second, tuple):
            raise BrokenPickleError("nested pairs")
        stack.append((first, second))
    elif code in (0x71, 0x72):  # BINPUT, LONG_BINPUT
        width = 1 if code == 0x71 else 4
        memo[int.from_bytes(_read_bytes(data, at, width), "little")] = stack[-1]
        return at + width
    else:
        return _read_scalar(code, data, at, stack)
    return at


_CONSTANTS = {0x4E: None, 0x88: True, 0x89: False}  # NONE, NEWTRUE, NEWFALSE


def _close_dict(stack: list[Any], marks: list[int]) -> None:
    bottom = marks.pop()
    pairs = iter(stack[bottom:])
    del stack[bottom:]
    stack[-1].update(zip(pairs, pairs, strict=True))


def _read_scalar(code: int, data: bytes, at: int, stack: list[Any]) -> int:
    """Read a number or a string."""
    if code == 0x4A:  # BININT
        stack.append(int.from_bytes(_read_bytes(data, at, 4), "little", signed=True))
        return at + 4
    if code == 0x8A:  # LONG1
        width = data[at]
        stack.append(int.from_bytes(_read_bytes(data, at + 1, width), "little", signed=True))
        return at + 1 + width
    if code == 0x58:  # BINUNICODE
        width = int.from_bytes(_read_bytes(data, at, 4), "little")
        stack.append(_read_bytes(data, at + 4, width).decode("utf-8", "surrogatepass"))
        return at + 4 + width
    if code == 0x47:  # BINFLOAT
        stack.append(struct.unpack(">d", _read_bytes(data, at, 8))[0])
        return at + 8
    if code == 0x80 and at == 1:  # PROTO
        return at + 1
    name = _OPCODE_NAMES.get(code)
    if name is None or at == 1:
        raise BrokenPickleError("not a pickle")
    raise ForbiddenOpcodeError(f"opcode {name} at byte {at - 1}")


def _read_bytes(data: bytes, at: int, width: int) -> bytes:
    part = data[at : at + width]
    if len(part) < width:
        raise BrokenPickleError("the data ends inside a value")
    return part
