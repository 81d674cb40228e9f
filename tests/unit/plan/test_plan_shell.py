"""Shell text is read in the order of execution, and what only a shell can know stays unknown."""

from hypothesis import given
from hypothesis import strategies as st

from firsttoken.plan.shell import SimpleCommand, commands
from firsttoken.plan.world import UNKNOWN


def run(text: str, *args: str, **env: str) -> list[SimpleCommand]:
    return list(commands(text, env, args))


def argvs(text: str, *args: str, **env: str) -> list[tuple[str, ...]]:
    return [command.argv for command in run(text, *args, **env)]


def test_quotes_comments_and_continued_lines_are_read() -> None:
    text = "a 'b c' \"d $X\" e\\ f # not this\n\n  g \\\n  h \\\n  'i'\n"
    assert argvs(text, X="1") == [("a", "b c", "d 1", "e f"), ("g", "h", "i")]


def test_variables_hold_what_they_were_given_last() -> None:
    assert argvs('M=x\nM=$M/y; run "$M" ${N:-z} ${M:+set} $NONE end') == [("run", "x/y", "z", "set", "end")]


def test_a_default_that_is_assigned_stays() -> None:
    assert argvs(': "${PORT:=8000}"\nrun $PORT') == [("run", "8000")]


def test_arrays_become_words() -> None:
    text = 'A=(--a "b c"  # first\n  --d)\nA+=(--e)\nrun "${A[@]}" x'
    assert argvs(text) == [("run", "--a", "b c", "--d", "--e", "x")]


def test_a_script_hands_its_arguments_on() -> None:
    assert argvs('run "$1" "$@" end', "s.sh", "a b", "c") == [("run", "a b", "a b", "c", "end")]
    assert argvs('run "$@" end', "s.sh") == [("run", "end")]
    assert argvs('shift; run "$@"', "s.sh", "a", "b") == [("run", "b")]


def test_an_unquoted_variable_is_split_and_an_empty_one_vanishes() -> None:
    assert argvs('run $ARGS $NONE "$NONE"', ARGS="--a 1  --b") == [("run", "--a", "1", "--b", "")]


def test_exported_variables_and_prefixes_reach_the_command() -> None:
    (command,) = run("export A=1 B\nC=2\nB=3\nset -a\nD=4\nE=5 run")
    assert command.env == {"A": "1", "B": "3", "D": "4", "E": "5"}


def test_what_only_a_shell_can_work_out_is_unknown() -> None:
    assert argvs("run $(date) `date` x$((1+1))y ${A%%b} $?") == [("run", UNKNOWN, UNKNOWN, f"x{UNKNOWN}y", UNKNOWN, UNKNOWN)]


def test_an_assignment_in_a_branch_is_unknown_behind_it() -> None:
    (command,) = run('if [ -n "$D" ]; then P=1; fi\nfor i in 1 2; do Q=$i; done\n[ -z "$R" ] || R=2\nrun $P $Q $R')
    assert command.argv == ("run", UNKNOWN, UNKNOWN, UNKNOWN)
    assert command.certain


def test_a_command_in_a_branch_is_told_as_uncertain() -> None:
    first, second = run("if true; then one; fi\ntwo")
    assert (first.argv, first.certain) == (("one",), False)
    assert (second.argv, second.certain) == (("two",), True)


def test_redirections_and_here_documents_are_no_words() -> None:
    text = "run a > log 2>&1 < /dev/null &>>x\ncat <<EOF > f\nnot run this\nEOF\nnext"
    assert argvs(text) == [("run", "a"), ("cat",), ("next",)]


def test_exec_and_folders_are_followed() -> None:
    (command,) = run("cd /x && exec -a name run a")
    assert command.argv == ("run", "a")
    assert command.folders == ("/x",)


def test_a_sourced_file_sets_variables() -> None:
    found = commands("source ./env\nrun $A", {}, (), {"./env": "A=1"}.get)
    assert [command.argv for command in found] == [("run", "1")]


def test_a_file_that_sources_itself_ends() -> None:
    assert commands("source me\nrun", {}, (), lambda _path: "source me") == (SimpleCommand(argv=("run",), env={}),)


@given(st.text(alphabet="ab=$'\"`\\(){}[]<>|&;#!*@?:-+ \n\t0", max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    for command in commands(text, {"a": "b"}, ("s", "t")):
        assert command.argv


@given(st.text(max_size=80))
def test_a_quoted_word_is_read_as_it_is(text: str) -> None:
    quoted = "'" + text.replace("'", "'\\''") + "'"
    assert argvs(f"run {quoted}") == [("run", text.replace("\r\n", "\n"))]
