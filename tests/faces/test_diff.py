"""`firsttoken diff`: two runs side by side; and the attempt before, told by the next."""

from cli_runs import FAKE, Cli


def test_two_runs_are_compared_and_a_killed_attempt_is_told_by_the_next(cli: Cli) -> None:
    killed = (*FAKE, "--until", "kill:9")
    first = cli("run", "--json", *killed, env={"NCCL_DEBUG": "INFO", "VLLM_API_KEY": "sk-abcdefghijklmnopqrstuvwx"})
    assert (first.json["verdict"], first.json["attempt"]) == ("crashed", 1)
    second = cli("run", "--json", *killed)
    assert second.json["attempt"] == 2
    assert f"the previous attempt ({first.json['run']}) was killed by SIGKILL after " in second.err
    third = cli("run", "--json", *FAKE, "--until", "exit:1")
    assert third.json["attempt"] == 1
    assert "previous attempt" not in third.err

    runs = (first.json["run"], third.json["run"])
    said, told = cli("diff", *runs), cli("diff", *runs, "--json")
    assert said.code == told.code == 0
    assert said.out.startswith(f"from {runs[0]}\nto   {runs[1]}\n")
    assert "--until" in said.out
    assert "abcdefghijkl" not in said.out + told.out
    changes = {(row["section"], row["name"]): (row["before"], row["after"]) for row in told.json["changes"]}
    assert told.json["kind"] == "difference"
    assert changes["command", "--until"] == ("kill:9", "exit:1")
    assert changes["environment", "NCCL_DEBUG"] == ("INFO", None)
    assert changes["environment", "VLLM_API_KEY"] == ("****", None)
    assert cli("diff", runs[0], "no-such-run").code == 2
