"""Log text to measure reading by: kinds of lines from `lines.toml`, mixed by their shares. Seeded: the same seed gives the same bytes."""

import random
import string
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).resolve().with_name("lines.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    share: float
    end: str
    lines: tuple[str, ...]


def kinds(path: Path = DATA) -> tuple[Kind, ...]:
    raw = tomllib.loads(path.read_text(encoding="utf8"))
    return tuple(Kind(name=name, share=item["share"], end=item["end"], lines=tuple(item["lines"])) for name, item in raw.items())


def text(size: int, seed: int, *, only: str | None = None) -> bytes:
    """At least `size` bytes of whole lines, of all kinds in their shares or of one kind."""
    chosen = [kind for kind in kinds() if only in (None, kind.name)]
    chance = random.Random(f"{seed} {only}")
    parts: list[bytes] = []
    have = 0
    for line in _lines(chosen, chance):
        parts.append(line)
        have += len(line)
        if have >= size:
            return b"".join(parts)
    raise ValueError(f"{DATA} has no kind called {only}")


def count_lines(data: bytes) -> int:
    return data.count(b"\n") + data.count(b"\r")


def _lines(chosen: list[Kind], chance: random.Random) -> Iterator[bytes]:
    shares = [kind.share for kind in chosen]
    number = 0
    while chosen:
        for kind in chance.choices(chosen, shares, k=1000):
            number += 1
            template = kind.lines[number % len(kind.lines)]
            yield (template.format_map(_Fields(chance, number)) + kind.end).encode()


class _Fields(Mapping[str, object]):
    """Drawn as they are asked for."""

    def __init__(self, chance: random.Random, number: int) -> None:
        self._chance, self._number = chance, number

    def __getitem__(self, name: str) -> object:
        chance = self._chance
        match name:
            case "n":
                return int(10 ** chance.uniform(0, 5))
            case "big":
                return int(10 ** chance.uniform(3, 9))
            case "f":
                return f"{chance.uniform(0, 2000):.2f}"
            case "hex":
                return f"{chance.getrandbits(128):032x}"
            case "ip":
                return f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(256)}"
            case "clock":
                seconds = self._number // 1000
                return f"{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            case "words":
                return " ".join(
                    "".join(chance.choices(string.ascii_lowercase, k=chance.randrange(2, 10))) for _ in range(chance.randrange(3, 10))
                )
            case "percent":
                return self._number % 101
            case "bar":
                return ("█" * (self._number % 101 // 10)).ljust(10)
            case _:
                raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
