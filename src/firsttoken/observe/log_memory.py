"""A dictionary that forgets what has not been asked for lately: two generations, so that remembering costs no bookkeeping per look."""

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memory(Generic[K, V]):
    """Holds at least the last `size` keys that were put or got, at most twice as many."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        value = self._young.get(key)
        if value is None and self._old:
            value = self._old.pop(key, None)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        self._young[key] = value
        if len(self._young) > self._size:
            self._old, self._young = self._young, {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


class Seen:
    """Which keys were seen lately."""

    def __init__(self, size: int) -> None:
        self._memory: Memory[int, bool] = Memory(size)

    def first(self, key: int) -> bool:
        """Whether this key is new; it is seen from now on."""
        if self._memory.get(key):
            return False
        self._memory.put(key, True)
        return True
