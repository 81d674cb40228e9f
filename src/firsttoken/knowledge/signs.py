"""What process titles, stack frames and GPU names mean: the shape of `knowledge/causes/_signs.toml` and its loader."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

import msgspec

from firsttoken.knowledge.load import KnowledgeError
from firsttoken.knowledge.profile import compiled
from firsttoken.model.stillness import Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSign:
    """`pattern` on the function's name; `file`, where set, on its file too."""

    sign: str
    pattern: str
    file: str | None = None
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSign:
    """`pattern` on the title."""

    sign: str
    pattern: str
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSign:
    """`watts`: what the card may draw."""

    pattern: str
    watts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    schema: int = 1
    process: tuple[ProcessSign, ...] = ()
    frame: tuple[FrameSign, ...] = ()
    gpu: tuple[GpuSign, ...] = ()

    def of_title(self, title: str) -> str | None:
        return next((sign.sign for sign in self.process if compiled(sign.pattern).search(title)), None)

    def of_frames(self, frames: tuple[Frame, ...], depth: int = 12) -> str | None:
        """The sign of the innermost frame that has one."""
        for frame in frames[:depth]:
            name = frame.function.rsplit(".", 1)[-1] if "::" not in frame.function else frame.function
            for sign in self.frame:
                if compiled(sign.pattern).search(name) and (sign.file is None or compiled(sign.file).search(frame.file)):
                    return sign.sign
        return None

    def watts(self, name: str | None) -> float | None:
        return next((sign.watts for sign in self.gpu if name and compiled(sign.pattern).search(name)), None)


@cache
def signs() -> Signs:
    """KnowledgeError where the file is wrong (a defect of the installation)."""
    content = resources.files("firsttoken.knowledge").joinpath("causes", "_signs.toml").read_bytes()
    try:
        return msgspec.convert(tomllib.loads(content.decode("utf8")), Signs, strict=True)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise KnowledgeError(f"_signs.toml: {error}") from error
