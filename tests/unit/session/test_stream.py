"""A run as one stream: stored, live, torn from its keeper, and without a keeper."""

import asyncio
from pathlib import Path

from fake_keeper import FakeKeeper, in_time

from firsttoken.history.runs import RunFolder
from firsttoken.launch.frames import LogFrame, encode_json
from firsttoken.model import codec
from firsttoken.model.events import Event, Tick
from firsttoken.session.stream import Ended, Item, Live, RunStream, TimeUp


def ticks(folder: RunFolder, *numbers: int) -> None:
    with folder.events_file.open("ab") as file:
        file.write(b"".join(codec.encode(Event(seq=number, t=0, wall=0, node="a", body=Tick())) for number in numbers))


def shape(items: list[Item]) -> list[object]:
    """Numbers for events, bytes for log, and the words."""
    return [item.seq if isinstance(item, Event) else item.data if isinstance(item, LogFrame) else item for item in items]


def test_what_is_stored_comes_first_then_what_is_live_without_a_gap_or_a_repetition(tmp_path: Path) -> None:
    async def story() -> list[Item]:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            await keeper.play(Tick(), Tick())
            await keeper.play(Tick(), stored=False)
            items = []
            async for item in RunStream(keeper.folder, "control").items():
                items.append(item)
                if isinstance(item, Event) and item.seq == 3:
                    await keeper.play(Tick())
                if isinstance(item, Event) and item.seq == 4:
                    await keeper.end(7)
            return items

    assert shape(in_time(story())) == [1, 2, Live(), 3, 4, Ended(True, 7, None)]


def test_the_log_is_told_from_where_it_was_asked_for(tmp_path: Path) -> None:
    async def story() -> list[Item]:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            (tmp_path / "log").mkdir()
            (tmp_path / "log" / "head.raw").write_bytes(b"stored ")
            await keeper.output(b"stored live ")
            items = []
            async for item in RunStream(keeper.folder, "control", log_from=2).items():
                items.append(item)
                if isinstance(item, LogFrame) and b"live" in item.data:
                    await keeper.output(b"later")
                if isinstance(item, LogFrame) and item.data == b"later":
                    await keeper.end()
            return items

    assert shape(in_time(story())) == [b"ored ", Live(), b"live ", b"later", Ended(True, 0, None)]


def test_a_client_that_fell_behind_reads_the_folder_up_to_where_the_keeper_is(tmp_path: Path) -> None:
    async def story() -> list[Item]:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            await keeper.play(Tick())
            items = []
            async for item in RunStream(keeper.folder, "control").items():
                items.append(item)
                if isinstance(item, Live):
                    ticks(keeper.folder, 2, 3)
                    await keeper.send(encode_json({"behind": {"events_from": 4, "log_from": None}}))
                if isinstance(item, Event) and item.seq == 3:
                    await keeper.end()
            return items

    assert shape(in_time(story())) == [1, Live(), 2, 3, Ended(True, 0, None)]


def test_a_wait_ends_when_its_time_is_up_and_the_stream_goes_on(tmp_path: Path) -> None:
    async def story() -> list[Item]:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            stream = RunStream(keeper.folder, "control")
            items = []
            async for item in stream.items():
                items.append(item)
                if isinstance(item, Live):
                    stream.until = asyncio.get_running_loop().time() + 0.05
                if isinstance(item, TimeUp):
                    stream.until = None
                    await keeper.play(Tick())
                if isinstance(item, Event):
                    await keeper.end()
            return items

    assert shape(in_time(story())) == [Live(), TimeUp(), 1, Ended(True, 0, None)]


def test_the_keepers_death_is_an_end_without_a_farewell_and_nothing_is_lost(tmp_path: Path) -> None:
    async def story() -> list[Item]:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            await keeper.play(Tick())
            items = []
            async for item in RunStream(keeper.folder, "control").items():
                items.append(item)
                if isinstance(item, Live) and len(items) == 2:
                    await keeper.joined()
                    ticks(keeper.folder, 2)  # written, and not sent any more
                    await keeper.die()
            return items

    assert shape(in_time(story())) == [1, Live(), 2, Live(), Ended(False)]


def test_without_a_keeper_the_folder_is_followed_for_as_long_as_somebody_writes_to_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    ticks(folder, 1)
    asked = iter([True, True, False])

    def still_written() -> bool:
        more = next(asked)
        ticks(folder, *((2,) if more else (3,)))
        return more

    async def story() -> list[Item]:
        return [item async for item in RunStream(folder, "control").items(still_written=still_written)]

    assert shape(in_time(story())) == [1, Live(), 2, 3, Ended(False)]


def test_without_a_keeper_a_wait_ends_in_time_too(tmp_path: Path) -> None:
    async def story() -> Item:
        stream = RunStream(RunFolder(tmp_path), "control", until=0.0)
        async for item in stream.items(still_written=lambda: True):
            if not isinstance(item, Live):
                return item
        raise AssertionError

    assert in_time(story()) == TimeUp()


def test_messages_that_are_no_events_are_passed_over(tmp_path: Path) -> None:
    async def story() -> list[Item]:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            items = []
            async for item in RunStream(keeper.folder, "control").items():
                items.append(item)
                if isinstance(item, Live):
                    await keeper.send(encode_json({"news": "from a later version"}))
                    await keeper.send(
                        encode_json({"events": [{"kind": "tick"}, {"seq": "x", "t": 0, "wall": 0, "node": "", "kind": "tick"}]})
                    )
                    await keeper.end()
            return items

    assert shape(in_time(story())) == [Live(), Ended(True, 0, None)]


def test_what_is_not_made_of_frames_ends_the_stream_and_not_us(tmp_path: Path) -> None:
    async def story() -> list[Item]:
        async with FakeKeeper(RunFolder(tmp_path)) as keeper:
            items = []
            async for item in RunStream(keeper.folder, "control").items():
                items.append(item)
                if isinstance(item, Live) and len(items) == 1:
                    await keeper.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return items

    assert shape(in_time(story())) == [Live(), Live(), Ended(False)]
