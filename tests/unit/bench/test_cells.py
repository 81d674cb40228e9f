import argparse
import json
from pathlib import Path

import pytest

from cells import Book, CellFailed, Row, Shard, document, measure


def told(row: Row) -> str:
    return str(row["cell"])


def test_a_second_call_measures_only_what_the_first_did_not(tmp_path: Path) -> None:
    path, asked = tmp_path / "results" / "x.jsonl", list[str]()

    def one(cell: str) -> Row:
        asked.append(cell)
        if cell == "b" and asked.count("b") == 1:
            raise CellFailed("the machine was busy")
        return {"value": len(asked)}

    assert measure(Book(path, {"seed": 1}), ["a", "b", "c"], Shard(), one, told) == 1
    assert measure(Book(path, {"seed": 1}), ["a", "b", "c", "d"], Shard(), one, told) == 0
    assert asked == ["a", "b", "c", "b", "d"]
    assert [row["cell"] for row in Book(path, {"seed": 1}).chosen(["a", "b", "c", "d"])] == ["a", "b", "c", "d"]


def test_rows_of_other_conditions_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    Book(path, {"seed": 1}).add("a", {"value": 1})
    other = Book(path, {"seed": 2})
    assert other.rows == {}
    other.add("a", {"value": 2})
    assert Book(path, {"seed": 1}).rows["a"]["value"] == 1


def test_a_torn_last_line_costs_that_line_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    Book(path, {}).add("a", {"value": 1})
    with path.open("ab") as file:
        file.write(b'{"cell": "b", "condi')
    book = Book(path, {})
    assert list(book.rows) == ["a"]
    book.add("c", {"value": 3})
    assert list(Book(path, {}).rows) == ["a", "c"]


def test_shards_share_all_cells_and_none_twice(tmp_path: Path) -> None:
    cells = [f"cell/{number}" for number in range(11)]
    measured: list[str] = []

    def one(cell: str) -> Row:
        measured.append(cell)
        return {}

    for number in (3, 1, 2):
        assert measure(Book(tmp_path / "x.jsonl", {}), cells, Shard.parse(f"{number}/3"), one, told) == 0
    assert sorted(measured) == sorted(cells)


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/b", "1/2/3", "-1/2"])
def test_a_shard_that_is_none_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no shard"):
        Shard.parse(text)


def test_the_document_is_json_with_the_schema_of_all_documents() -> None:
    made = json.loads(json.dumps(document("x", {"ratio": 1.0}, [{"cell": "a"}])))
    assert (made["schema"], made["kind"], made["name"], made["cells"]) == ("firsttoken/1", "benchmark", "x", [{"cell": "a"}])
