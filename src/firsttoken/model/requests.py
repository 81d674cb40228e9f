"""Evidence that the judge asks for by value; the shell collects it and answers with events."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AskForToken:
    """A real generation. `number` 1 and 2 are asked with different prompts."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskHealth:
    """The engine's health or model route: for roles that cannot give a token. `number` counts the tries."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LookClosely:
    """Places and stacks of all members, once: one `Places` and one `Stacks` event for each, with `round` = `number`."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskCounters:
    """The metrics of an engine that serves, once: one `EngineCounters`."""


Request = AskForToken | AskHealth | LookClosely | AskCounters
