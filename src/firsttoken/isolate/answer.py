"""What is known so far, in words: who is guilty, cleared or still open, what was verified, and the answer as a sentence."""

from collections.abc import Callable, Sequence

from firsttoken.isolate.beliefs import Config, bits_of
from firsttoken.isolate.search import Answer, View
from firsttoken.model.isolation import Outcome, Purpose, Setting, Trial


def standing(settings: Sequence[Setting], view: View, failing: Config | None) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Labels of what is known to be guilty, what is cleared, and what is open."""
    if failing is not None:
        inside = [bool(failing >> at & 1) for at in range(len(settings))]
        return _named(settings, inside), _named(settings, [not one for one in inside]), ()
    if view.beliefs is None:
        return (), (), tuple(setting.label for setting in settings)
    shares = view.beliefs.marginals()
    guilty = [share > 0.99 for share in shares]
    cleared = [not view.smallest >> at & 1 or share < 0.01 for at, share in enumerate(shares)]
    open_ = [not one and not other for one, other in zip(guilty, cleared, strict=True)]
    return _named(settings, guilty), _named(settings, cleared), _named(settings, open_)


def _named(settings: Sequence[Setting], chosen: Sequence[bool]) -> tuple[str, ...]:
    return tuple(setting.label for setting, one in zip(settings, chosen, strict=True) if one)


def posterior(settings: Sequence[Setting], view: View) -> tuple[tuple[tuple[str, ...], float], ...]:
    if view.beliefs is None:
        return ()
    return tuple(
        (tuple(settings[at].label for at in range(len(settings)) if config >> at & 1), round(p, 4))
        for config, p in view.beliefs.likeliest(6)
    )


def verified(
    trials: Sequence[Trial], failing: Config | None, fixed: Config | None, config_of: Callable[[Trial], Config]
) -> tuple[str, ...]:
    """What was launched again and came out as said. `fixed`: the configuration with the fix."""
    said = []
    if failing is not None and any(one.purpose is Purpose.FAILS_AGAIN and one.outcome is Outcome.SAME for one in trials):
        said.append("the minimal failing configuration failed again")
    if failing is not None and failing.bit_count() > 1 and all(fewer in _passed(trials, config_of) for fewer in _fewer(failing)):
        said.append("without any one of its settings it passed")
    as_typed = [one for one in trials if one.shortcut is None and not one.place]
    if fixed is not None and any(config_of(one) == fixed and one.verdict == "ready" for one in as_typed):
        said.append("the fix brought a real token")
    return tuple(said)


def unjudged(trials: Sequence[Trial], failing: Config | None, config_of: Callable[[Trial], Config]) -> Config:
    """Settings of the minimal failing configuration without which it was seen to fail in another way and never to pass."""
    if failing is None or failing.bit_count() < 2:
        return 0
    passed = _passed(trials, config_of)
    different = {config_of(one) for one in trials if one.outcome is Outcome.DIFFERENT}
    return sum(failing & ~fewer for fewer in _fewer(failing) if fewer in different and fewer not in passed)


def _passed(trials: Sequence[Trial], config_of: Callable[[Trial], Config]) -> set[Config]:
    return {config_of(one) for one in trials if one.outcome is Outcome.PASSES}


def _fewer(failing: Config) -> list[Config]:
    return [failing & ~(1 << at) for at in bits_of(failing)]


def reason(answer: Answer, settings: Sequence[Setting], trials: Sequence[Trial], in_doubt: Config = 0) -> str:
    """`in_doubt`: the unjudged settings of the answer."""
    match answer.kind:
        case "found":
            failing, fix = answer.failing or 0, answer.fix or 0
            said = [f"it fails with {_listed(settings, failing & ~in_doubt or failing)}"]
            if in_doubt:
                said.append(f"whether {_listed(settings, in_doubt)} matters cannot be told: with that changed it fails in another way")
            if fix & ~failing:
                said.append(f"without that it fails still, with {_listed(settings, fix & ~failing)}")
            changes = [setting.change for at, setting in enumerate(settings) if fix >> at & 1]
            said.append(f"fixed by {' and '.join(changes)}" if fix else "no change to it is known that passes")
            return "; ".join(said)
        case "elsewhere":
            base = next((one for one in trials if one.outcome is Outcome.SAME), None)
            how = base.verdict if base is not None else "failed"
            return f"the barest command fails in the same way ({how}): no setting is at fault"
        case "not_reproduced":
            if all(one.outcome is Outcome.UNRESOLVED and one.until == "time" for one in trials):
                return "no launch was decided in its time: give them more (--trial-time)"
            return f"the command did not fail in {len(trials)} launches; --intermittent launches it more often"
        case "changed":
            return "the unchanged command does not fail any more as it did: something beside its settings has changed meanwhile"
        case _:
            return "what is left fails, and what would make it smaller fails in other ways or could not be decided"


def _listed(settings: Sequence[Setting], config: Config) -> str:
    return " and ".join(setting.label for at, setting in enumerate(settings) if config >> at & 1)
