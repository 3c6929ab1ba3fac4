import subprocess

import pytest

ALBUM = ["add Aria 210", "add Ballad 185", "add Canon 320"]
ARIA, BALLAD, CANON = "playing Aria (210 s)", "playing Ballad (185 s)", "playing Canon (320 s)"


def run_jukebox(program, commands):
    return subprocess.run([program], input="\n".join(commands) + "\n", capture_output=True, text=True)


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        pytest.param(["play 2", "drop", "next"], [BALLAD, "dropped Ballad", ARIA], id="middle"),
        pytest.param(["play 1", "drop", "next"], [ARIA, "dropped Aria", CANON], id="first"),
        pytest.param(["play 3", "drop", "next"], [CANON, "dropped Canon", BALLAD], id="last"),
    ],
)
def test_next_after_drop(program, commands, expected):
    run = run_jukebox(program, [*ALBUM, *commands])
    assert run.returncode == 0
    assert run.stdout.splitlines() == expected


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        pytest.param(["next"], [ARIA], id="starts"),
        pytest.param(["play 2", "next"], [BALLAD, CANON], id="goes-on"),
        pytest.param(["play 3", "next"], [CANON, ARIA], id="wraps"),
        pytest.param(["play 4", "drop"], ["no track 4", "nothing is playing"], id="no-such-track"),
    ],
)
def test_next(program, commands, expected):
    run = run_jukebox(program, [*ALBUM, *commands])
    assert run.returncode == 0
    assert run.stdout.splitlines() == expected


def test_drop_until_empty(program):
    run = run_jukebox(program, [*ALBUM, "play 1", "drop", "drop", "drop", "next"])
    assert run.stdout.splitlines()[-2:] == ["dropped Canon", "the list is empty"]


def test_list_marks_the_current_track(program):
    run = run_jukebox(program, [*ALBUM, "play 2", "list"])
    assert run.stdout.splitlines() == [BALLAD, "  1 Aria", "* 2 Ballad", "  3 Canon"]


def test_history_keeps_four(program):
    run = run_jukebox(program, [*ALBUM, *["next"] * 5, "history"])
    assert run.stdout.splitlines()[5:] == ["played Ballad", "played Canon", "played Aria", "played Ballad"]


def test_unknown_command(program):
    run = run_jukebox(program, ["shuffle"])
    assert (run.returncode, run.stderr) == (1, "jukebox: cannot obey: shuffle\n")
