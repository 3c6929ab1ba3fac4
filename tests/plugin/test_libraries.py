"""A defect in a shared library, diagnosed in a real session that counts the library as the program's own code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from building import run_compiler
from suites import SUITE_INI, Session, ShareSession, find_alternative, read_chain, read_index, read_section, run_session

MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "tariff.h"

int main(int argc, char **argv)
{
    int weight = argc > 1 ? atoi(argv[1]) : 0;
    int zone = argc > 2 ? atoi(argv[2]) : 0;
    printf("fee %d\\n", tariff_fee(weight, zone));
    return 0;
}
"""
HEADER = "int tariff_fee(int weight, int zone);\n"
TARIFF = """
#include "tariff.h"

static int surcharge;

static void set_zone(int zone)
{
    surcharge = zone;
    if (zone > 2)
        surcharge = -5;
}

int tariff_fee(int weight, int zone)
{
    int fee = 2 * weight;
    set_zone(zone);
    fee += surcharge;
    return fee;
}
"""
TEST = """
import subprocess

import pytest


@pytest.mark.parametrize("zone", [2, 3])
def test_fee(zone):
    run = subprocess.run(["./post", "10", str(zone)], capture_output=True, text=True)
    assert run.stdout.split() == ["fee", str(20 + zone)]
"""


def build_suite(directory: Path, *library_flags: str) -> None:
    for name, text in {"main.c": MAIN, "tariff.h": HEADER, "tariff.c": TARIFF, "test_post.py": TEST}.items():
        (directory / name).write_text(text)
    (directory / "lib").mkdir()
    run_compiler(directory, *library_flags, "-shared", "-fPIC", "-o", "lib/libtariff.so", "tariff.c")
    run_compiler(directory, "main.c", "-o", "post", "lib/libtariff.so", "-Wl,-rpath,$ORIGIN")


def run_with(directory: Path, libraries: str, *options: str) -> Session:
    (directory / "pytest.ini").write_text(f"{SUITE_INI}cause_chain_libraries = {libraries}\n")
    return run_session(directory, *options)


def find_line(text: str) -> int:
    return next(number for number, line in enumerate(TARIFF.splitlines(), 1) if text in line)


def name_place(place: dict[str, Any]) -> tuple[str, int]:
    return Path(place["file"]).name, place["line"]


@pytest.fixture
def post(share_session: ShareSession) -> Session:
    def run(directory: Path) -> Session:
        build_suite(directory)
        return run_with(directory, "libother.so libtariff.so*")

    return share_session("post", run)


def test_causes_within_the_library(post):
    chain = read_chain(post.directory)
    assert (chain["status"], chain["reason"]) == ("complete", None)
    beside = find_alternative(chain)
    links = {link["causes"][0]["variable"]: link for link in beside["chain"]}
    assert {"surcharge", "fee"} <= set(links)
    surcharge = links["surcharge"]["causes"][0]
    assert (surcharge["failing"], surcharge["passing"], surcharge["frame"]) == ("-5", "2", None)
    transition = next(t for t in beside["transitions"] if "surcharge" in t["to"])
    assert [Path(place).name for place in transition["only_in_failing"]] == [f"tariff.c:{find_line('= -5')}"]
    assert name_place(links["fee"]["made_by"]) == ("tariff.c", find_line("fee += surcharge"))
    assert links["fee"]["moment"]["backtrace"] == ["tariff_fee", "main"]


def test_suspects_and_the_section(post):
    chain = read_chain(post.directory)
    assert Path(chain["suspects"][0]["file"]).name == "tariff.c"
    section = "\n".join(read_section(post.output))
    line = find_line("zone > 2")
    assert (line, "2", "3") in [(repair["line"], repair["was"], repair["with"]) for repair in chain["repairs"]]
    told = rf"With the first branch taken the other way at \S*tariff\.c:{line} the test passes\."
    assert re.search(told, " ".join(section.split()))
    assert re.search(r"so\s+surcharge was -5 \(2\)", section)


def test_replay_in_plain_gdb_shows_the_wrong_fee(post):
    chain = read_chain(post.directory)
    place = post.directory / ".causechain" / Path(read_index(post.directory)[0]["path"]).parent
    for number, link in enumerate(chain["chain"], 1):
        command = ["gdb", "-nx", "-batch", "-x", f"{number}.gdb"]
        run = subprocess.run(command, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert "fee 15" in run.stdout, (link, run)


def test_without_it_the_chain_ends_at_the_call(tmp_path):
    build_suite(tmp_path)
    run_with(tmp_path, "")
    chain = read_chain(tmp_path)
    assert chain["status"] == "complete"
    assert {name_place(link["moment"])[0] for link in chain["chain"]} == {"main.c"}


def test_path_from_rootdir(tmp_path):
    build_suite(tmp_path)
    run_with(tmp_path, "lib/libtariff.so")
    assert any("surcharge" in cause["variable"] for link in read_chain(tmp_path)["chain"] for cause in link["causes"])


def test_library_without_debug_information_is_told(tmp_path):
    build_suite(tmp_path, "-g0")
    session = run_with(tmp_path, "libtariff.so")
    chain = read_chain(tmp_path)
    assert chain["status"] == "partial"
    assert chain["reason"].startswith("libtariff.so is named in cause_chain_libraries but has no debug information")
    assert "build it with -g" in " ".join(" ".join(read_section(session.output)).split())


def test_a_list_that_cannot_be_read(pytester):
    pytester.makeini("[pytest]\ncause_chain_libraries = 'libtariff.so\n")
    result = pytester.runpytest_subprocess("--cause-chain")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: cause_chain_libraries must be a list of file names (No closing quotation)."])


def test_help_tells_of_it(pytester):
    result = pytester.runpytest_subprocess("--help")
    result.stdout.fnmatch_lines(["*cause_chain_libraries (args):*"])
