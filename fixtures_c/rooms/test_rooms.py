import subprocess

import pytest


def run_rooms(program, *commands):
    return subprocess.run([program], input="\n".join(commands) + "\n", capture_output=True, text=True)


@pytest.mark.parametrize(
    ("wish", "answer"),
    [
        pytest.param("blue 10:00 11:00", "Bo: An is there", id="same-time"),
        pytest.param("blue 10:30 10:45", "Bo: An is there", id="within"),
        pytest.param("blue 09:00 12:00", "Bo: An is there", id="around"),
        pytest.param("blue 10:59 12:00", "Bo: An is there", id="last-minute"),
        pytest.param("green 10:00 11:00", "Bo: booked", id="other-room"),
        pytest.param("blue 11:00 12:00", "Bo: booked", id="right-after"),
        pytest.param("blue 08:30 10:00", "Bo: booked", id="right-before"),
    ],
)
def test_second_booking(program, wish, answer):
    run = run_rooms(program, "book blue 10:00 11:00 An", f"book {wish} Bo")
    assert run.stdout.splitlines() == ["An: booked", answer]


def test_bookings_are_shown_in_order(program):
    run = run_rooms(program, "book blue 13:00 14:30 An", "book red 08:00 09:00 Bo", "show red", "show blue")
    assert run.stdout.splitlines()[2:] == ["08:00-09:00 Bo", "13:00-14:30 An"]


def test_cancelled_booking_makes_room(program):
    run = run_rooms(program, "book blue 10:00 11:00 An", "cancel blue 10:00", "book blue 10:00 12:00 Bo")
    assert run.stdout.splitlines() == ["An: booked", "An: cancelled", "Bo: booked"]


@pytest.mark.parametrize("command", ["book blue 11:00 10:00 An", "book blue noon 13:00 An", "cancel blue 10:00"])
def test_cannot_obey(program, command):
    run = run_rooms(program, command)
    assert (run.returncode, run.stderr) == (1, f"rooms: cannot obey: {command}\n")
