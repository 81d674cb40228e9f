"""What is known so far, in words: who is guilty, cleared or still open, what was verified, and the answer as a sentence."""

from collections.abc import Callable, Sequence

from firsttoken.isolate.beliefs import Config
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
    if failing is not None and any(one.purpose is Purpose.MINIMAL and one.outcome is Outcome.PASSES for one in trials):
        said.append("without any one of its settings it passed")
    as_typed = [one for one in trials if one.shortcut is None and not one.place]
    if fixed is not None and any(config_of(one) == fixed and one.verdict == "ready" for one in as_typed):
        said.append("the fix brought a real token")
    return tuple(said)


def reason(answer: Answer, settings: Sequence[Setting], base: Trial | None) -> str:
    match answer.kind:
        case "found":
            failing = [setting.label for at, setting in enumerate(settings) if (answer.failing or 0) >> at & 1]
            fix = [setting.label for at, setting in enumerate(settings) if (answer.fix or 0) >> at & 1]
            cured = f"; changing {' and '.join(fix)} fixes it" if fix else "; no change to it is known that passes"
            return f"it fails with {' and '.join(failing)}{cured}"
        case "elsewhere":
            how = base.verdict if base is not None else "failed"
            return f"the barest command fails in the same way ({how}): none of {len(settings)} settings is at fault"
        case "not_reproduced":
            return "the command did not fail again; --intermittent launches it more often"
        case "changed":
            return "the unchanged command does not fail any more as it did: something beside its settings has changed meanwhile"
        case _:
            return "what is left fails, and what would make it smaller fails in other ways or could not be decided"
