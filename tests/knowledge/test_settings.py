"""What `isolate` knows of each engine: whole, in the engine's own words, and asking only for what can be asked."""

import re

import pytest

from firsttoken.knowledge.load import generic, profiles
from firsttoken.knowledge.profile import Profile

ALL = [*profiles().values(), generic()]
KNOWN = [profile for profile in ALL if profile.settings]


@pytest.mark.parametrize("profile", KNOWN, ids=lambda profile: profile.name)
def test_names_of_settings_and_shortcuts_are_unique(profile: Profile) -> None:
    for names in ([rule.name for rule in profile.settings], [rule.name for rule in profile.shortcuts]):
        assert len(names) == len(set(names))


@pytest.mark.parametrize("profile", KNOWN, ids=lambda profile: profile.name)
def test_a_setting_changes_something_and_is_suspected_in_phases_that_the_engine_has(profile: Profile) -> None:
    for rule in profile.settings:
        assert rule.flags or rule.add or rule.env, rule.name
        assert set(rule.phases) <= set(profile.order), rule.name
        assert not rule.add or rule.add[0].startswith("-"), rule.name
        assert all(flag.startswith("-") and "=" not in flag for flag in rule.flags), rule.name
    for shortcut in profile.shortcuts:
        assert set(shortcut.skips) <= set(profile.order), shortcut.name
        assert shortcut.add[0].startswith("--")


@pytest.mark.parametrize("profile", KNOWN, ids=lambda profile: profile.name)
def test_no_flag_belongs_to_two_settings(profile: Profile) -> None:
    flags = [flag for rule in profile.settings for flag in rule.flags]
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize("profile", KNOWN, ids=lambda profile: profile.name)
def test_what_is_asked_for_exists(profile: Profile) -> None:
    """Fields of conditions are those of some engine's options; patterns of variables are patterns."""
    fields = {option.field for one in ALL for option in one.options}
    for rule in profile.settings:
        assert {when.field for when in rule.when if when.field} <= fields, rule.name
    assert set(profile.isolation.keep_fields) <= fields
    for pattern in (*profile.isolation.env, *profile.isolation.keep_env):
        re.compile(pattern)
