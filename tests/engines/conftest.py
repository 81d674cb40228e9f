"""Real engines as fixtures, and a home for each test's runs that must be empty of processes in the end.

An engine that is not installed skips its tests with the command that installs it; in CI (CI=true, or FIRSTTOKEN_ENGINES_REQUIRED=1) it
fails them: a check that quietly did not run is worse than a red one.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from .family import Family
from .install import ENVIRONMENTS, HERE, Environment, stamped
from .launches import LlamaCpp, Sglang, Transformers, Vllm
from .life import Face

pytest.register_assert_rewrite(f"{__package__}.checks")

_GRACE = 15.0
"""Seconds for keepers to end after their servers, where a test did not ask for `stop`."""

Household = Callable[[str], AbstractContextManager[Face]]


@pytest.fixture(scope="session")
def vllm() -> Vllm:
    return Vllm(_installed("vllm"))


@pytest.fixture(scope="session")
def sglang() -> Sglang:
    return Sglang(_installed("sglang"))


@pytest.fixture(scope="session")
def llamacpp() -> LlamaCpp:
    return LlamaCpp(_installed("llamacpp"))


@pytest.fixture(scope="session")
def transformers() -> Transformers:
    return Transformers(_installed("transformers"))


@pytest.fixture(scope="session")
def household(tmp_path_factory: pytest.TempPathFactory) -> Household:
    """Makes a command line with a home of its own; on leaving, nothing that its runs started may be left."""

    @contextmanager
    def make(name: str) -> Iterator[Face]:
        with Family(home := tmp_path_factory.mktemp(name) / "home") as family:
            yield Face(home, family)
            left = family.left_after(_GRACE)
            family.end()
            assert not left, f"still running when the test had ended (killed now): {left}"

    return make


@pytest.fixture
def face(household: Household) -> Iterator[Face]:
    with household("face") as made:
        yield made


def _installed(name: str) -> Environment:
    environment = ENVIRONMENTS[name]
    if stamped(environment):
        return environment
    text = f"{name} is not installed in {environment.folder}; install it with: bash {os.path.relpath(HERE / 'install.sh')} {name} models"
    if os.environ.get("CI") == "true" or os.environ.get("FIRSTTOKEN_ENGINES_REQUIRED") == "1":
        pytest.fail(text, pytrace=False)
    pytest.skip(text)
