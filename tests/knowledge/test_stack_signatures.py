"""Every signature is shown by its samples; what a stack says does not depend on how names are qualified."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firsttoken.knowledge.load import KnowledgeError
from firsttoken.knowledge.stacks import Doing, Signature, classify, marked, parse, sample_frames, signature, signatures
from firsttoken.model.stillness import Frame, ThreadStack

SAMPLES = [pytest.param(one, text, id=f"{one.id}-{number}") for one in signatures() for number, text in enumerate(one.samples)]


@pytest.mark.parametrize(("one", "text"), SAMPLES)
def test_a_sample_shows_its_signature(one: Signature, text: str) -> None:
    frames = sample_frames(text)
    assert len(frames) == len(text.strip().splitlines())
    found = classify(frames)
    assert found is not None
    assert found.signature.id == one.id


@pytest.mark.parametrize(("one", "text"), SAMPLES)
def test_it_does_so_without_qualified_names_too(one: Signature, text: str) -> None:
    """Python before 3.11, and pystack, tell bare names."""
    bare = [Frame(f.function if f.native else f.function.rsplit(".", 1)[-1], f.file, f.line, f.native) for f in sample_frames(text)]
    found = classify(bare)
    assert found is not None
    assert found.signature.id == one.id


@pytest.mark.parametrize("one", signatures(), ids=lambda one: one.id)
def test_a_meaning_ends_a_sentence(one: Signature) -> None:
    assert one.meaning[0].islower()
    assert not one.meaning.endswith(".")


def test_the_innermost_telling_frame_decides() -> None:
    stack = "acquire (filelock/_api.py:344)\ncompile_fx (torch/_inductor/compile_fx.py:600)"
    found = classify(sample_frames(stack))
    assert found is not None
    assert (found.signature.kind, found.index) == (Doing.LOCK, 0)


def test_work_inside_of_a_compile_is_a_compile() -> None:
    stack = "simplify (sympy/core/expr.py:5)\n" * 30 + "run (torch/_inductor/graph.py:977)"
    found = classify(sample_frames(stack))
    assert found is not None
    assert found.signature.kind is Doing.COMPILE


def test_a_wait_for_a_child_inside_of_an_import_is_no_import() -> None:
    stack = "Popen.wait (subprocess.py:1264)\n<module> (a/b.py:1)\n_find_and_load (<frozen importlib._bootstrap>:1176)"
    found = classify(sample_frames(stack))
    assert found is not None
    assert found.signature.kind is Doing.CHILD


def test_far_outside_a_wait_tells_nothing() -> None:
    stack = "f (my/code.py:1)\n" * 10 + "all_reduce (torch/distributed/distributed_c10d.py:3246)"
    assert classify(sample_frames(stack)) is None


def test_a_stack_carries_what_it_says() -> None:
    stack = ThreadStack(tid=5, main=True, active=False, frames=sample_frames("barrier (torch/distributed/distributed_c10d.py:5350)"))
    told = marked(stack)
    assert (told.sign, told.doing, told.where, told.active, told.main) == ("torch-collective", "collective", "barrier", False, True)
    assert marked(ThreadStack(tid=5)) == ThreadStack(tid=5)


def test_a_signature_is_found_by_its_id() -> None:
    one = signature("filelock")
    assert one is not None
    assert one.tell[0] == "lock_filename"
    assert signature("nothing") is None


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("schema = 2", "schema"),
        ("schema = 1\nother = 1", "`other`"),
        (
            'schema = 1\n[[signature]]\nid = "a"\nkind = "lock"\nmeaning = "m"\nfunction = "("\nsamples = ["f (a.py:1)"]',
            "regular expression",
        ),
        ('schema = 1\n[[signature]]\nid = "a"\nkind = "nap"\nmeaning = "m"\nfunction = "f"\nsamples = ["f (a.py:1)"]', "nap"),
        ('schema = 1\n[[signature]]\nid = "a"\nkind = "lock"\nmeaning = "m"\nfunction = "f"\nsample = ["f (a.py:1)"]', "signature.sample"),
        ('schema = 1\n[[signature]]\nid = "a"\nkind = "lock"\nmeaning = "m"\nfunction = "f"', "no sample"),
        ("schema = ", "TOML"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_name(text: str, wrong: str) -> None:
    with pytest.raises(KnowledgeError, match=wrong) as caught:
        parse(text.encode(), "mine.toml")
    assert "mine.toml" in str(caught.value)


@given(st.lists(st.builds(Frame, st.text(max_size=20), st.text(max_size=20), st.integers(), st.booleans()), max_size=20))
def test_no_stack_is_too_odd(frames: list[Frame]) -> None:
    classify(frames)
