"""Reads the pickles that torch's recorder writes, without unpickling: an interpreter of those opcodes that make plain values.

There is no opcode here that imports, calls or builds anything, so a hostile file can at worst be refused. Python's own unpickler is not
used even with its lookups forbidden: one opcode of it allocates memory by a number in the file.
"""

from struct import error as StructError
from struct import unpack_from
from typing import Any

_MOST_STEPS = 20_000_000


class NotPlain(ValueError):
    """The file is no pickle of plain values; the text says where it stops being one."""


_MARK: Any = object()


def read_plain(data: bytes) -> Any:
    """Dicts, lists, tuples, strings, bytes, numbers, booleans and None. NotPlain for anything else, and for what is cut off."""
    try:
        return _interpret(data)
    except NotPlain:
        raise
    except (IndexError, KeyError, TypeError, ValueError, StructError, AttributeError, OverflowError) as error:
        raise NotPlain(f"a damaged pickle: {type(error).__name__}") from error


def _interpret(data: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    at, steps = 0, 0
    push = stack.append
    while True:
        op = data[at]
        at += 1
        steps += 1
        if op == 0x68:  # BINGET: by far the most frequent
            push(memo[data[at]])
            at += 1
        elif op == 0x28:  # MARK
            push(_MARK)
        elif op == 0x5D:  # EMPTY_LIST
            push([])
        elif op == 0x65:  # APPENDS
            items = _since_mark(stack)
            stack[-1].extend(items)
        elif op == 0x4D:  # BININT2
            push(data[at] | data[at + 1] << 8)
            at += 2
        elif op == 0x4B:  # BININT1
            push(data[at])
            at += 1
        elif op == 0x71:  # BINPUT
            memo[data[at]] = stack[-1]
            at += 1
        elif op == 0x72:  # LONG_BINPUT
            memo[unpack_from("<I", data, at)[0]] = stack[-1]
            at += 4
        elif op == 0x6A:  # LONG_BINGET
            push(memo[unpack_from("<I", data, at)[0]])
            at += 4
        elif op == 0x58:  # BINUNICODE
            at, text = _text(data, at + 4, unpack_from("<I", data, at)[0])
            push(text)
        elif op == 0x4A:  # BININT
            push(unpack_from("<i", data, at)[0])
            at += 4
        elif op == 0x7D:  # EMPTY_DICT
            push({})
        elif op == 0x75:  # SETITEMS
            items = _since_mark(stack)
            target = stack[-1]
            if not isinstance(target, dict) or len(items) % 2:
                raise NotPlain("items without a dictionary")
            for key in items[::2]:
                _check_key(key)
            target.update(zip(items[::2], items[1::2], strict=True))
        elif op == 0x4E:  # NONE
            push(None)
        elif op == 0x89:  # NEWFALSE
            push(False)
        elif op == 0x88:  # NEWTRUE
            push(True)
        elif op == 0x86:  # TUPLE2
            stack[-2:] = [(stack[-2], stack[-1])]
        elif op == 0x8A:  # LONG1
            end = at + 1 + data[at]
            push(int.from_bytes(_slice(data, at + 1, end), "little", signed=True))
            at = end
        elif op == 0x47:  # BINFLOAT
            push(unpack_from(">d", data, at)[0])
            at += 8
        elif op == 0x61:  # APPEND
            item = stack.pop()
            stack[-1].append(item)
        elif op == 0x73:  # SETITEM
            value, key = stack.pop(), stack.pop()
            _check_key(key)
            stack[-1][key] = value
        elif op == 0x74:  # TUPLE
            items = _since_mark(stack)
            push(tuple(items))
        elif op == 0x29:  # EMPTY_TUPLE
            push(())
        elif op == 0x85:  # TUPLE1
            stack[-1] = (stack[-1],)
        elif op == 0x87:  # TUPLE3
            stack[-3:] = [(stack[-3], stack[-2], stack[-1])]
        elif op == 0x8C:  # SHORT_BINUNICODE
            at, text = _text(data, at + 1, data[at])
            push(text)
        elif op == 0x94:  # MEMOIZE
            memo[len(memo)] = stack[-1]
        elif op in (0x42, 0x43):  # BINBYTES, SHORT_BINBYTES
            size, head = (unpack_from("<I", data, at)[0], 4) if op == 0x42 else (data[at], 1)
            at += head + size
            push(_slice(data, at - size, at))
        elif op == 0x95:  # FRAME
            at += 8
        elif op == 0x80:  # PROTO
            at += 1
        elif op == 0x2E:  # STOP
            if len(stack) != 1 or stack[0] is _MARK:
                raise NotPlain("a damaged pickle: it ends too early")
            return stack[0]
        else:
            raise NotPlain(f"not plain data: opcode 0x{op:02x} at byte {at - 1} is not among those that only make values")
        if steps > _MOST_STEPS:
            raise NotPlain("too large")


def _since_mark(stack: list[Any]) -> list[Any]:
    """What was pushed after the last mark; takes both off."""
    last = len(stack) - 1
    while stack[last] is not _MARK:
        last -= 1
        if last < 0:
            raise NotPlain("a damaged pickle: no mark")
    items = stack[last + 1 :]
    del stack[last:]
    return items


def _check_key(key: object) -> None:
    """Hashing a tuple of tuples of tuples takes time without end."""
    if type(key) not in (str, int):
        raise NotPlain("a key that is neither text nor a number")


def _text(data: bytes, begin: int, size: int) -> tuple[int, str]:
    return begin + size, _slice(data, begin, begin + size).decode("utf8", "replace")


def _slice(data: bytes, begin: int, end: int) -> bytes:
    if end > len(data):
        raise NotPlain("cut off")
    return data[begin:end]
