"""Programs that may be kept on one processor, and those that might notice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_causechain.kernel.processes import PROCESSORS, needs_processors, read_mappings, roam, staying

PLAIN = '#include <stdio.h>\n#include <math.h>\nint main(int c, char **v) { printf("%f", sin(c)); }'
PLAIN_CPP = "#include <iostream>\n#include <vector>\nint main() { std::cout << std::vector<int>(3).size(); }"
NOTICING = {
    "asks": "#include <unistd.h>\nint main(void) { return sysconf(_SC_NPROCESSORS_ONLN); }",
    "forks": "#include <unistd.h>\nint main(void) { return fork(); }",
    "has others": '#include <stdlib.h>\nint main(void) { return system("exit 1"); }',
}
NOTICING_CPP = {
    "asks": "#include <thread>\nint main() { return std::thread::hardware_concurrency(); }",
    "threads": "#include <thread>\nint main() { std::thread([] {}).join(); }",
    "tasks": "#include <future>\nint main() { return std::async(std::launch::async, [] { return 3; }).get(); }",
}


def files_of(subject) -> set[str]:
    return {mapping.name for mapping in read_mappings(subject.pid) if mapping.name.startswith("/")}


@pytest.mark.parametrize(("source", "compiler"), [(PLAIN, "cc"), (PLAIN_CPP, "c++")], ids=["C", "C++"])
def test_an_ordinary_program_does_not_notice(build, start, source, compiler):
    files = files_of(start(build(source, "-lm", compiler=compiler)))
    assert any("libc." in path for path in files)
    assert not needs_processors(files)


@pytest.mark.parametrize("way", NOTICING)
def test_a_program_that_might_notice(build, start, way):
    assert needs_processors(files_of(start(build(NOTICING[way]))))


@pytest.mark.parametrize("way", NOTICING_CPP)
def test_a_program_in_cpp_that_might_notice(build, start, way):
    assert needs_processors(files_of(start(build(NOTICING_CPP[way], compiler="c++"))))


def test_a_library_may_ask_for_it(build, start, tmp_path):
    (tmp_path / "library.c").write_text(
        "#include <unistd.h>\nint count(void) { return sysconf(_SC_NPROCESSORS_ONLN); }"
    )
    library = str(tmp_path / "libcount.so")
    assert os.system(f"cc -shared -fPIC -o {library} {tmp_path}/library.c") == 0
    source = "int count(void); int main(void) { return count(); }"
    files = files_of(start(build(source, library, f"-Wl,-rpath,{tmp_path}")))
    assert not needs_processors(files - {library})
    assert needs_processors(files)


@pytest.mark.parametrize("content", [b"", b"\x7fELF and no more"])
def test_what_cannot_be_read_might_notice(tmp_path, content):
    path = tmp_path / "damaged"
    path.write_bytes(content)
    assert needs_processors([str(path)])
    assert needs_processors([str(Path(tmp_path, "missing"))])


def test_we_stay_and_roam():
    with staying() as here:
        assert len(here) == 1
        assert os.sched_getaffinity(0) == here
        with staying() as still:
            assert still == here
        assert os.sched_getaffinity(0) == here
        roam()
        assert os.sched_getaffinity(0) == PROCESSORS
    assert os.sched_getaffinity(0) == PROCESSORS
