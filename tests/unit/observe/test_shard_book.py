from hypothesis import given
from hypothesis import strategies as st

from firsttoken.observe.shard_book import ShardBook
from firsttoken.observe.shards import Shard, ShardSet

SIZE = 1 << 30


def book_of(count: int, given_by_command: bool = True) -> ShardBook:
    book = ShardBook()
    assert book.add(ShardSet(tuple(Shard(f"/m/{n}", f"/m/{n}", SIZE) for n in range(count)), given_by_command))
    return book


def test_a_shard_that_was_read_and_is_closed_is_done() -> None:
    book = book_of(3)
    book.look({"/m/0": (SIZE // 2, "mapped")})
    assert (book.shards_done, book.bytes_done, book.how) == (0, SIZE // 2, "mapped")
    book.look({"/m/1": (0, "mapped")})
    assert (book.shards_done, book.bytes_done, book.how) == (1, SIZE, "closed")
    assert book.held == (("/m/1", SIZE, 0),)


def test_a_header_that_was_read_is_not_a_shard_that_was_loaded() -> None:
    book = book_of(3)
    book.look({"/m/2": (8192, "offset")})
    book.look({})
    assert (book.shards_done, book.how) == (0, "")


def test_shards_between_two_looks_are_taken_as_read_while_the_order_holds() -> None:
    book = book_of(10)
    book.look({"/m/4": (SIZE // 2, "mapped")})
    assert (book.shards_done, book.how) == (4, "mapped + order")
    book.look({"/m/7": (SIZE // 2, "mapped"), "/m/8": (0, "mapped")})
    assert book.shards_done == 7


def test_once_files_come_out_of_order_nothing_is_taken_as_read() -> None:
    book = book_of(10)
    book.look({"/m/0": (SIZE // 2, "mapped"), "/m/5": (SIZE // 2, "mapped")})
    book.look({"/m/5": (SIZE // 2, "mapped"), "/m/2": (SIZE // 2, "mapped")})
    book.look({"/m/9": (SIZE // 2, "mapped")})
    assert book.shards_done == 3


def test_a_file_that_stays_mapped_is_done_when_all_of_it_was_touched() -> None:
    book = book_of(1)
    book.look({"/m/0": (SIZE, "mapped")})
    assert book.shards_done == 1


def test_read_counters_fill_up_what_is_open_and_no_more() -> None:
    book = book_of(3)
    book.look({"/m/0": (0, "offset")}, counted=SIZE // 4)
    assert (book.bytes_done, book.how) == (SIZE // 4, "counters")
    book.look({"/m/0": (0, "offset")}, counted=5 * SIZE)
    assert book.bytes_done == SIZE
    book.look({"/m/1": (0, "offset")}, counted=5 * SIZE)
    assert (book.shards_done, book.bytes_done) == (1, 2 * SIZE)


def test_an_opened_set_takes_the_place_of_the_one_that_was_expected() -> None:
    book = book_of(3)
    book.add(ShardSet((Shard("/m/c", "/m/c", SIZE),)))
    assert book.shards == 3
    book.look({"/m/c": (SIZE // 2, "mapped")})
    assert (book.shards, book.bytes) == (1, SIZE)


def test_a_set_that_grew_takes_the_place_of_the_smaller_one() -> None:
    book = book_of(2)
    book.look({"/m/0": (SIZE // 2, "mapped")})
    assert not book.add(ShardSet((Shard("/m/0", "/m/0", SIZE),)))
    assert book.add(ShardSet(tuple(Shard(f"/m/{n}", f"/m/{n}", SIZE) for n in range(5))))
    assert (book.shards, book.bytes_done) == (5, SIZE // 2)


@given(
    st.lists(st.dictionaries(st.integers(0, 4).map(lambda n: f"/m/{n}"), st.tuples(st.integers(0, SIZE), st.just("offset"))), max_size=12)
)
def test_progress_never_falls_and_never_passes_the_whole(looks: list[dict[str, tuple[int, str]]]) -> None:
    book = book_of(5)
    before = (0, 0)
    for look in looks:
        book.look(look, counted=17)
        assert 0 <= book.bytes_done <= book.bytes
        assert (book.shards_done, book.bytes_done) >= before
        assert book.shards_done >= before[0]
        before = (book.shards_done, book.bytes_done)
