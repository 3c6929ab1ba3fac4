import subprocess

import pytest


@pytest.fixture
def check(program, tmp_path):
    def check(text):
        file = tmp_path / "server.conf"
        file.write_text(text)
        return subprocess.run([program, file], capture_output=True, text=True)

    return check


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param("port = 0", "out of range", id="port-too-small"),
        pytest.param("port = 65536", "out of range", id="port-too-large"),
        pytest.param("port = http", "not a number", id="no-number"),
        pytest.param("workers = -1", "out of range", id="workers-negative"),
        pytest.param("verbose = maybe", "neither yes nor no", id="no-boolean"),
        pytest.param("host =", "no value", id="no-value"),
        pytest.param("color = red", "unknown key", id="unknown-key"),
        pytest.param("host = " + 64 * "x", "too long", id="too-long"),
    ],
)
def test_problem(check, line, problem):
    run = check(f"# all of it\n{line}\n")
    assert (run.returncode, run.stdout) == (1, f"line 2: {problem}\n")


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        pytest.param("", "localhost:8080, 4 workers", id="nothing"),
        pytest.param("port=65535 # highest\n", "localhost:65535, 4 workers", id="highest-port"),
        pytest.param("workers = 64\nport = 80\n", "localhost:80, 64 workers", id="two"),
        pytest.param("workers = 8\nverbose = yes\n", "localhost:8080, 8 workers, verbose", id="verbose"),
        pytest.param("  host =  example.org  \n\n", "example.org:8080, 4 workers", id="blanks"),
    ],
)
def test_settings(check, text, settings):
    run = check(text)
    assert (run.returncode, run.stdout) == (0, settings + "\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("host = example.org\nport = 80\n", "ports below 1024 are for localhost", id="port-and-host"),
        pytest.param("workers = 9\nverbose = yes\n", "too many workers to be verbose", id="workers-and-verbose"),
    ],
)
def test_settings_do_not_fit_together(check, text, problem):
    run = check(text)
    assert run.stdout.splitlines()[0] == problem
    assert run.returncode == 1


def test_all_problems_are_told(check):
    run = check("port\nverbose = no\nworkers = many\n")
    assert run.stdout.splitlines() == ["line 1: no value", "line 3: not a number"]


def test_no_file(program):
    assert subprocess.run([program, "/does/not/exist"], capture_output=True).returncode == 2
