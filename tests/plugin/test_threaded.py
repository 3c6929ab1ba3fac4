"""Programs with threads, diagnosed in real sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import compile_program
from suites import (
    SUITE_INI,
    Session,
    ShareSession,
    find_alternative,
    read_chain,
    read_section,
    read_sentence,
    run_session,
)

# Two threads find the least numbers of the halves of the arguments. Of an odd count the second one reads one too many.
LEAST = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct share { int *first, *end, least; char *label; };

static void *find_least(void *argument)
{
    struct share *share = argument;
    char label[50];
    share->least = *share->first;
    for (int *number = share->first; number < share->end; number++)
        if (*number < share->least)
            share->least = *number;
    snprintf(label, sizeof label, "%d numbers", (int)(share->end - share->first));
    share->label = strdup(label);
    return NULL;
}

static int read_numbers(char **words, int *numbers)
{
    int count = 0;
    while (words[count]) {
        numbers[count] = atoi(words[count]);
        count++;
    }
    return count;
}

static int combine(struct share *shares)
{
    return shares[0].least < shares[1].least ? shares[0].least : shares[1].least;
}

int main(int argc, char **argv)
{
    int numbers[20] = {0}, count = read_numbers(argv + 1, numbers);
    int half = (count + 1) / 2;
    struct share shares[2] = {{numbers, numbers + half}, {numbers + half, numbers + 2 * half}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, find_least, &shares[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("%d\n", combine(shares));
    return 0;
}
"""
TEST_LEAST = """
import subprocess

import pytest


@pytest.mark.parametrize("numbers", [[5, 4], [4, 3, 5, 6], [4, 3, 5]], ids=["two", "four", "three"])
def test_least(numbers):
    run = subprocess.run(["./least", *map(str, numbers)], capture_output=True, text=True)
    assert int(run.stdout) == min(numbers)
"""
# Which thread comes first is a matter of chance: each waits for a time of its own.
RACE = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void *print(void *text)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    usleep((now.tv_nsec / 1000 * 7919 + *(char *)text * 31) % 5000);
    write(1, text, 1);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[26];
    for (int i = 1; i < argc; i++)
        pthread_create(&threads[i], NULL, print, argv[i]);
    for (int i = 1; i < argc; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
"""
TEST_RACE = """
import subprocess

import pytest


@pytest.mark.parametrize("words", ["a", "abcdefghijklm"])
def test_order(words):
    run = subprocess.run(["./race", *words], capture_output=True, text=True)
    assert run.stdout == words
"""


def run_least(directory: Path) -> Session:
    compile_program(directory / "least", LEAST, "-pthread")
    (directory / "test_least.py").write_text(TEST_LEAST)
    (directory / "pytest.ini").write_text(SUITE_INI)
    session = run_session(directory)
    run_session(directory, "-n", "2", "--cause-chain-dir=again")
    return session


@pytest.fixture
def least(share_session: ShareSession) -> Session:
    return share_session("least", run_least)


class TestChain:
    def test_leads_through_the_threads(self, least):
        chain = read_chain(least.directory)
        assert (chain["status"], chain["reason"]) == ("complete", None)
        beside = find_alternative(chain)
        variables = [cause["variable"] for link in beside["chain"] for cause in link["causes"]]
        assert variables == ["argv[4]", "numbers[3]", "shares[1].least"]
        assert all(link["follows"] for link in beside["chain"])
        assert "so shares[1].least was 0 (5)" in " ".join(" ".join(read_section(least.output)).split())

    def test_the_twins_too(self, least):
        """Its code is another one throughout, so that there are moments while the threads run."""
        chain = read_chain(least.directory)
        assert (chain["peer"]["kind"], chain["statistics"]["lab"]) == ("twin", "rerun")
        assert {cause["kind"] for cause in chain["chain"][0]["causes"]} == {"code"}
        assert all(link["follows"] for link in chain["chain"])

    def test_the_same_with_workers(self, least):
        first, second = (read_chain(least.directory, place=place) for place in (".causechain", "again"))
        assert second["chain"] == first["chain"]
        assert second["suspects"] == first["suspects"]


def test_output_in_another_order_each_time(pytester):
    compile_program(pytester.path / "race", RACE, "-pthread")
    pytester.makeini(SUITE_INI)
    pytester.makepyfile(test_race=TEST_RACE)
    result = pytester.runpytest_subprocess("--cause-chain")
    assert "flaky" in read_sentence(result.stdout.str())
