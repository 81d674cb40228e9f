"""How much of a file lies in the page cache: by cachestat (Linux 6.5), else by mincore over a mapping that touches no page.

Key insight: both ask the kernel about memory and never the disk, so that looking changes nothing; but opening the file asks its file
system, which may hang on a dead mount.
"""

import ctypes
import mmap
import os

_CACHESTAT = 451
"""its number on all architectures; arch/*/entry/syscalls of Linux 6.5"""
_PAGE = mmap.PAGESIZE
_WINDOW = 1 << 30
"""bytes that are mapped at one time, for mincore"""
_PROT_READ, _MAP_SHARED = 1, 1
_FAILED = ctypes.c_void_p(-1).value
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Stat(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted"))


def cached_bytes(fd: int, offset: int, length: int) -> int | None:
    """Of `length` bytes from `offset` of an open file, those in the page cache, to whole pages; None where the kernel does not tell.

    Pages that are just being read count too."""
    if length <= 0:
        return 0
    told = by_cachestat(fd, offset, length)
    return by_mincore(fd, offset, length) if told is None else told


def by_cachestat(fd: int, offset: int, length: int) -> int | None:
    """None where there is no such call, or it is refused (a file of another user, a seccomp filter)."""
    found = _Stat()
    if _libc.syscall(_CACHESTAT, ctypes.c_uint(fd), ctypes.byref(_Range(offset, length)), ctypes.byref(found), ctypes.c_uint(0)):
        return None
    return min(int(found.cache) * _PAGE, length)


def by_mincore(fd: int, offset: int, length: int) -> int | None:
    """Since Linux 5.2 it tells of files that we own or may write only; of others it says that all is there, so None then."""
    try:
        owned = os.stat(fd).st_uid == os.geteuid() or os.geteuid() == 0
    except OSError:
        return None
    if not owned:
        return None
    begin, end = offset // _PAGE * _PAGE, offset + length
    pages = 0
    while begin < end:
        size = min(_WINDOW, end - begin)
        address = _libc.mmap(None, size, _PROT_READ, _MAP_SHARED, fd, begin)
        if address == _FAILED:
            return None
        try:
            told = ctypes.create_string_buffer((size + _PAGE - 1) // _PAGE)
            if _libc.mincore(address, size, told):
                return None
            pages += sum(told.raw[:-1].translate(_LOWEST_BIT)) + (told.raw[-1] & 1)
        finally:
            _libc.munmap(address, size)
        begin += size
    return min(pages * _PAGE, length)


_LOWEST_BIT = bytes(number & 1 for number in range(256))
