"""Runs the real Makefile on a machine of stand-ins, commands that note each call and end as the test says."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parent.parent / "Makefile"
MAKE = shutil.which("make") or "make"


class Machine:
    """A directory with the Makefile and the only commands that its recipes can see."""

    def __init__(self, directory: Path) -> None:
        self.project = directory / "project"
        self.commands = directory / "bin"
        self.calls_file = directory / "calls"
        self.project.mkdir()
        self.commands.mkdir()
        shutil.copy(MAKEFILE, self.project)
        (self.project / "pyproject.toml").touch()
        (self.project / "benchmarks").mkdir()
        (self.project / "benchmarks" / "requirements.txt").touch()
        (self.commands / "env").symlink_to("/usr/bin/env")
        (self.commands / "touch").symlink_to(shutil.which("touch") or "touch")
        self.add_command("python3", 'case "$*" in *python%d*) echo python3.11-venv ;; esac')
        self.add_command(".venv/bin/python", "")
        self.add_command("gdb", "")
        self.add_command("cc", "")
        self.add_command("c++", "")
        self.add_command("id", "echo 0")
        self.add_command("apt-get", "")

    def add_command(self, name: str, script: str) -> None:
        path = self.project / name if "/" in name else self.commands / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "{path.name} $*" >>"{self.calls_file}"\n{script}\n')
        path.chmod(0o755)

    def remove_command(self, name: str) -> None:
        (self.commands / name).unlink()

    def make(self, *targets: str) -> subprocess.CompletedProcess[str]:
        self.calls_file.write_text("")
        # Without the variables by which the make that started these tests talks to its children.
        environment = {"PATH": str(self.commands)}
        return subprocess.run(
            [MAKE, "-s", *targets], cwd=self.project, env=environment, capture_output=True, text=True, check=False
        )

    def calls(self, command: str) -> list[str]:
        lines = self.calls_file.read_text().splitlines()
        return [line.removeprefix(f"{command} ") for line in lines if line.startswith(f"{command} ")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class TestDemo:
    @pytest.mark.parametrize("status", [0, 1])
    def test_failing_tests_are_fine(self, machine, status):
        machine.add_command(".venv/bin/python", f'case "$*" in *pytest*) exit {status} ;; esac')
        assert machine.make("demo").returncode == 0
        programs = "fixtures_c/sample fixtures_c/jukebox fixtures_c/tidy"
        assert f"-m pytest --cause-chain {programs}" in machine.calls("python")

    def test_of_other_programs(self, machine):
        machine.make("demo", "DEMO=ledger fill")
        assert "-m pytest --cause-chain fixtures_c/ledger fixtures_c/fill" in machine.calls("python")

    @pytest.mark.parametrize("status", [2, 3, 4, 5])
    def test_errors_of_pytest_are_not(self, machine, status):
        machine.add_command(".venv/bin/python", f'case "$*" in *pytest*) exit {status} ;; esac')
        assert machine.make("demo").returncode != 0


class TestSetup:
    def test_installs_once(self, machine):
        assert machine.make("setup").returncode == 0
        assert machine.calls("python")[-1].endswith("--editable .[dev]")
        assert machine.make("setup").returncode == 0
        assert not [call for call in machine.calls("python") if "pip install" in call]

    @pytest.mark.parametrize("file", ["pyproject.toml", "benchmarks/requirements.txt"])
    def test_installs_again_when_a_project_file_changes(self, machine, file):
        machine.make("setup")
        stamp = machine.project / ".venv" / ".installed"
        later = stamp.stat().st_mtime + 10
        os.utime(machine.project / file, (later, later))
        machine.make("setup")
        assert [call for call in machine.calls("python") if "pip install" in call]

    def test_failed_installation_is_not_taken_for_done(self, machine):
        machine.add_command(".venv/bin/python", 'case "$*" in *editable*) exit 1 ;; esac')
        assert machine.make("setup").returncode != 0
        assert not (machine.project / ".venv" / ".installed").exists()

    def test_old_python(self, machine):
        machine.add_command("python3", "exit 1")
        run = machine.make("setup")
        assert run.returncode != 0
        assert run.stderr.splitlines()[0].startswith("Python 3.11 or newer is needed:")


class TestTools:
    def test_nothing_is_missing(self, machine):
        assert machine.make("tools").returncode == 0
        assert machine.calls("apt-get") == []

    def test_root_installs_what_is_missing(self, machine):
        machine.remove_command("gdb")
        assert machine.make("tools").returncode == 0
        assert machine.calls("apt-get") == ["install -y --no-install-recommends gdb -qq"]

    def test_package_lists_are_updated_when_needed(self, machine):
        machine.remove_command("cc")
        machine.add_command("apt-get", '[ "$1" = update ] && : >updated; [ -e updated ]')
        assert machine.make("tools").returncode == 0
        assert [call.split()[0] for call in machine.calls("apt-get")] == ["install", "update", "install"]

    def test_browser_is_installed_for_screenshots_only(self, machine):
        assert machine.make("setup").returncode == 0
        assert machine.calls("apt-get") == []
        assert machine.make("screenshots").returncode == 0
        assert machine.calls("apt-get") == ["install -y --no-install-recommends chromium fonts-dejavu-core -qq"]

    def test_sudo_without_password(self, machine):
        machine.remove_command("gdb")
        machine.add_command("id", "echo 1000")
        machine.add_command("sudo", 'shift; [ "$1" = true ] || "$@"')
        assert machine.make("tools").returncode == 0
        assert machine.calls("apt-get") == ["install -y --no-install-recommends gdb -qq"]

    def test_without_rights_the_command_is_told(self, machine):
        for name in ("gdb", "cc", "c++"):
            machine.remove_command(name)
        machine.add_command("id", "echo 1000")
        machine.add_command("sudo", "exit 1")
        machine.add_command(".venv/bin/python", "exit 1")
        machine.add_command("python3", 'case "$*" in *ensurepip*) exit 1 ;; *python%d*) echo python3.11-venv ;; esac')
        run = machine.make("setup")
        assert run.returncode != 0
        assert machine.calls("apt-get") == []
        told = [line for line in run.stderr.splitlines() if not line.startswith("make")]
        assert told == [
            "Some packages are missing: run 'sudo apt-get install -y --no-install-recommends"
            " python3.11-venv gdb gcc libc6-dev g++', then make again."
        ]
