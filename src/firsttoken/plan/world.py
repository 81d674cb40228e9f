"""What a plan may know of the world, handed in as values and callables: planning itself touches nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from posixpath import isabs, join, normpath

# Inside a word: a part whose text could not be known (a command substitution, a variable set in a branch).
UNKNOWN = "\x00"


def _nothing(_path: str) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The environment and folder that a command runs in. `read_text` and `list_folder` get absolute paths and answer None for what is
    not there, not readable, or (`read_text`) not text; `to_here` gives a path's name on this machine, None where it has none."""

    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    read_text: Callable[[str], str | None] = _nothing
    list_folder: Callable[[str], tuple[str, ...] | None] = _nothing
    to_here: Callable[[str], str | None] = str

    def path(self, name: str) -> str:
        """The absolute, normalised path of a name as this command means it (`~` and relative names included)."""
        home = self.env.get("HOME", "")
        if home and (name == "~" or name.startswith("~/")):
            name = home + name[1:]
        return normpath(name if isabs(name) else join(self.cwd, name))
