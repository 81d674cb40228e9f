"""`firsttoken kernels`: files in, a table or a document out."""

from pathlib import Path

from cli_runs import Cli
from gpu_fixtures import built


def test_a_file_is_told_for_the_gpu_that_is_asked_for(cli: Cli, tmp_path: Path) -> None:
    library = tmp_path / "ops.so"
    library.write_bytes(built("differing.so"))
    said = cli("kernels", str(library), "--gpu", "sm_90", "--gpu", "12.0", "--names")
    assert said.code == 0
    assert said.out.splitlines()[1:4] == [
        "    sm_80×2  sm_90a×1  PTX sm_80×1",
        "    9.0: 1 of 2 modules run, 1 only after the driver compiled PTX (529 B of it in all)",
        "      1 kernel only by PTX:",
    ]
    said = cli("kernels", str(library), "--gpu", "sm_75", "--json")
    assert said.code == 1, "nothing runs there"
    told = said.json
    assert told["kind"] == "kernels"
    assert told["libraries"][0]["coverage"][0]["fit"] == "none"


def test_what_is_not_found_is_a_usage_error(cli: Cli, tmp_path: Path) -> None:
    said = cli("kernels", "no-such-package", "--gpu", "9.0")
    assert said.code == 2
    assert "is no file or folder, and no package" in said.err
    assert cli("kernels", str(tmp_path), "--gpu", "nine").code == 2
    assert cli("kernels", str(tmp_path), "--gpu", "9.0").out == f"no GPU code in {tmp_path}\n"
