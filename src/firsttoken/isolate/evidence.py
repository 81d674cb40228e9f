"""Which trials count. Cheap ones (with a shortcut, or ended because they stood like the baseline) do until one that was not cheap says
otherwise of the same settings; then none of their kind does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firsttoken.isolate.beliefs import Config
from firsttoken.isolate.search import Tried
from firsttoken.model.isolation import Outcome, Purpose, Trial

_BESIDE = (Purpose.SHORTCUT, Purpose.PLACE)
"""They tell about the way, not about the settings."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """`config_of`: the settings that a trial kept. `intermittent`: the failure is known to come and go."""

    trials: Sequence[Trial]
    config_of: Callable[[Trial], Config]
    intermittent: bool = False

    @property
    def in_time(self) -> list[Trial]:
        """Those that were not cut off because the time of all was over: these are launched again when there is more."""
        return [trial for trial in self.trials if trial.until != "spent"]

    @property
    def tried(self) -> list[Tried]:
        """For the search."""
        wrong = [cheap for cheap in (_cut, _alike) if self._wrong(cheap)]
        return [
            Tried(self.config_of(one), one.outcome, whole=not _cut(one) and not one.place and one.until not in ("passed", "alike"))
            for one in self._telling
            if not any(cheap(one) for cheap in wrong)
        ]

    @property
    def alike_does(self) -> bool:
        """Whether standing like the baseline has meant failing like it so far."""
        return not self._wrong(_alike)

    @property
    def shortcut(self) -> str | None:
        """The one with which the whole command was seen to fail alike, and that nothing has contradicted since."""
        found = next((one.shortcut for one in self.trials if one.purpose is Purpose.SHORTCUT and one.outcome is Outcome.SAME), None)
        return found if not self._wrong(_cut) else None

    @property
    def _telling(self) -> list[Trial]:
        return [trial for trial in self.in_time if trial.purpose not in _BESIDE]

    def _wrong(self, cheap: Callable[[Trial], bool]) -> bool:
        """What comes and goes contradicts by itself."""
        real = {self.config_of(trial): trial.outcome for trial in self._telling if not _cut(trial) and not _alike(trial)}
        told = any(real.get(self.config_of(trial), trial.outcome) is not trial.outcome for trial in self._telling if cheap(trial))
        return told and not (cheap is _alike and self.intermittent)


def _cut(trial: Trial) -> bool:
    return trial.shortcut is not None


def _alike(trial: Trial) -> bool:
    return trial.until == "alike"
