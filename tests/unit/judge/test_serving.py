"""What our own requests prove: tokens, refusals, errors, and what is only not yet."""

import pytest

from firsttoken.judge.serving import GENERATING, Serving, answered, asked, is_token
from firsttoken.model.events import HttpAnswer, HttpAsked
from firsttoken.model.words import ProbeKind


def answer(
    status: int | None = 200, probe: ProbeKind = ProbeKind.COMPLETION, tokens: int | None = 8, error: str | None = None
) -> HttpAnswer:
    return HttpAnswer(probe=probe, url="http://x", status=status, tokens=tokens, error=error)


def after(*answers: HttpAnswer) -> Serving:
    serving = Serving()
    for i, one in enumerate(answers):
        serving = answered(asked(serving, HttpAsked(probe=one.probe, url=one.url), float(i)), one, i + 0.5)
    return serving


@pytest.mark.parametrize("probe", sorted(GENERATING))
def test_each_generating_request_brings_a_token(probe: ProbeKind) -> None:
    assert after(answer(probe=probe)).tokens == 1


@pytest.mark.parametrize("probe", [ProbeKind.EMBEDDING, ProbeKind.RERANK])
def test_embeddings_and_rankings_have_no_tokens_to_count(probe: ProbeKind) -> None:
    assert is_token(answer(probe=probe, tokens=0))
    assert not is_token(answer(probe=probe, error="no embedding in the answer"))


@pytest.mark.parametrize(
    "one", [answer(tokens=0), answer(status=500), answer(status=None, error="reset"), answer(error="no text"), answer(status=201)]
)
def test_what_brings_nothing_is_no_token(one: HttpAnswer) -> None:
    assert not is_token(one)


@pytest.mark.parametrize("probe", [ProbeKind.HEALTH, ProbeKind.MODELS])
def test_a_health_page_brings_no_token_and_is_no_request_under_way(probe: ProbeKind) -> None:
    serving = asked(Serving(), HttpAsked(probe=probe, url="http://x"), 1.0)
    assert serving.open_since is None
    serving = answered(serving, answer(probe=probe), 2.0)
    assert (serving.tokens, serving.answers, serving.healthy) == (0, (), True)
    assert answered(serving, answer(503, probe), 3.0).healthy, "healthy once is told"
    assert not answered(Serving(), answer(503, probe), 3.0).healthy


def test_a_request_is_under_way_until_it_is_answered() -> None:
    serving = asked(Serving(), HttpAsked(probe=ProbeKind.CHAT, url="http://x"), 4.0)
    assert serving.open_since == 4.0
    assert answered(serving, answer(probe=ProbeKind.HEALTH), 5.0).open_since == 4.0, "another page answers"
    done = answered(serving, answer(probe=ProbeKind.CHAT), 6.0)
    assert (done.open_since, done.answered_at) == (None, 6.0)


@pytest.mark.parametrize("status", [400, 401, 404, 422, 499])
def test_a_refusal_is_kept_and_is_no_error(status: int) -> None:
    serving = after(answer(status))
    assert serving.refused is not None
    assert serving.errors == ()


@pytest.mark.parametrize(
    "one", [answer(500), answer(502), answer(504), answer(200, tokens=0), answer(None, error="no whole answer"), answer(None)]
)
def test_an_answer_without_a_token_is_an_error(one: HttpAnswer) -> None:
    serving = after(one)
    assert serving.refused is None
    assert len(serving.errors) == 1


@pytest.mark.parametrize(
    "one", [answer(503), answer(None, error="could not connect to http://x"), answer(None, error="Could not connect: TLS")]
)
def test_loading_and_refused_connections_are_not_yet(one: HttpAnswer) -> None:
    serving = after(one, one, one)
    assert (serving.errors, serving.refused, serving.tokens) == ((), None, 0)


def test_a_token_clears_what_went_wrong_before() -> None:
    serving = after(answer(500), answer(404), answer())
    assert (serving.errors, serving.refused, serving.tokens) == ((), None, 1)


def test_what_is_kept_is_bounded_and_tries_are_counted() -> None:
    serving = after(*[answer(500)] * 50)
    assert len(serving.answers) == 8
    assert len(serving.errors) == 4
    assert serving.tries == {ProbeKind.COMPLETION: 50}
