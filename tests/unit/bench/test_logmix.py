import logmix


def test_the_same_seed_gives_the_same_bytes_and_another_one_others() -> None:
    assert logmix.text(20_000, 1) == logmix.text(20_000, 1) != logmix.text(20_000, 2)


def test_the_shares_of_all_kinds_make_a_whole() -> None:
    assert abs(sum(kind.share for kind in logmix.kinds()) - 1.0) < 1e-9


def test_every_kind_can_be_had_alone_and_consists_of_whole_lines() -> None:
    for kind in logmix.kinds():
        data = logmix.text(5_000, 0, only=kind.name)
        assert data.endswith(kind.end.encode())
        assert logmix.count_lines(data) >= 10
