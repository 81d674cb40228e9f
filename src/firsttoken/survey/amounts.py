"""Bytes in words. GiB where memory is meant: so engines and drivers print it."""


def gib(size: float) -> str:
    """`70.5 GiB`, `340 MiB`."""
    if abs(size) >= 1 << 30:
        return f"{size / (1 << 30):.1f} GiB"
    return f"{size / (1 << 20):.0f} MiB" if abs(size) >= 1 << 20 else f"{size / 1024:.1f} KiB"


def tokens(count: int) -> str:
    return f"{count:,} tokens"
