"""What is said of each test of acting.py that fails."""

from __future__ import annotations

EXIT = "it exits with status 3 (0 in the passing run)"
HANG = "it has not ended when its time is up"
TEXT = "the text compared at {} contains '52' and lacks '7'"
VALUE = "the value compared at {} is 52 (7 in the passing run)"

# What is said of each failing test behind "A run fails when"; {} is the line that is marked so in it, or its last one.
SENTENCES = {
    "test_check_output[bad]": TEXT,
    "test_call[bad]": EXIT,
    "test_communicate[bad]": TEXT,
    "test_pipe_by_hand[bad]": TEXT,
    "test_output_to_a_file[bad]": TEXT,
    "test_asyncio[bad]": TEXT,
    "test_asyncio_shell[bad]": EXIT,
    "test_function_fixture[bad]": TEXT,
    "TestShared::test_class_fixture": TEXT,
    "test_module_fixture": TEXT,
    "test_session_fixture": TEXT,
    "test_guilty_first[bad]": TEXT,
    "test_guilty_middle[bad]": "the value compared at {} is 52 (1 in the passing run)",
    "test_guilty_last[bad]": "the text compared at {} contains '52'",
    "test_wrapper[sh -c-bad]": TEXT,
    "test_wrapper[env-bad]": TEXT,
    "test_wrapper[timeout 30-bad]": TEXT,
    "test_wrapper[nice -n 1-bad]": TEXT,
    "test_wrapper[stdbuf -oL-bad]": TEXT,
    "test_wrapper[libtool-bad]": TEXT,
    "test_wrapped_hang[bad]": HANG,
    "test_shell[bad]": TEXT,
    "test_relative[bad]": TEXT,
    "test_environment[bad]": TEXT,
    "test_stdin[file-bad]": VALUE,
    "test_stdin[pipe-bad]": VALUE,
    "test_stdin[bytes-bad]": VALUE,
    "test_devnull[bad]": EXIT,
    "test_input_file[bad]": TEXT,
    "test_output_file[named-bad]": TEXT,
    "test_output_file[here-bad]": TEXT,
    "test_signal[bad]": "it is killed by SIGSEGV in main()",
    "test_check[bad]": EXIT,
    "test_timeout[bad]": HANG,
    "test_stderr[bad]": TEXT,
    "test_in[bad]": "the text compared at {} lacks 'total 7'",
    "test_not_in[bad]": "the text compared at {} contains '52'",
    "test_other_expectation[bad]": "it prints exactly 'total 52\\n' and ends with status 0",
    "test_search[bad]": "the test raises AssertionError at {}",
    "test_fullmatch[bad]": "the test raises AssertionError at {}",
    "test_number[bad]": VALUE,
    "test_limit[bad]": "the value compared at {} is not < 10",
    "test_approx[bad]": "the value compared at {} is 52.0000001 (7 ± 7.0e-06 in the passing run)",
    "test_list[bad]": "the list compared at {} contains '52' and lacks '7'",
    "test_sorted[bad]": "the list compared at {} has '9' at index 0, '52' at index 1, '3' at index 2",
    "test_dict[bad]": "the dictionary compared at {} contains 'b': '52' and lacks 'b': '7'",
    "test_json[bad]": "the dictionary compared at {} contains 'a': [1, 52] and lacks 'a': [1, 7]",
    "test_several_assertions[bad]": TEXT,
    "test_helper[bad]": "the test raises AssertionError at helping.py:4",
    "test_fixture_assertion[bad]": TEXT,
    "test_raises[bad]": "it exits with status 0 (3 in the passing run)",
    "test_assert_message[bad]": "the assertion number < 5 at act.c:35 does not hold",
    "test_address_sanitizer[bad]": "AddressSanitizer reports heap-buffer-overflow at act.c:48",
    "test_undefined_behaviour[bad]": "UndefinedBehaviorSanitizer reports signed integer overflow at act.c:17",
    "test_fails_when[bad]": "the marker's fails_when says so",
}

AROUND = "is started through {}: start it with subprocess.run instead."
UNDER = "runs the program under {}: start the program itself from the test."
SHELL = "uses {} of the shell: start the compiled program itself from the test."

# How the reason ends why there is no chain.
REFUSALS = {
    "test_os_system[bad]": "act " + AROUND.format("os.system"),
    "test_posix_spawn[bad]": "act " + AROUND.format("os.posix_spawn"),
    "test_os_spawn[bad]": "act " + AROUND.format("os.spawn*"),
    "test_pexpect[bad]": "a program " + AROUND.format("pexpect"),
    "test_not_guilty[bad]": "test_not_guilty[bad] fails in the same way whatever its 2 runs print and return, so that "
    "none of them explains it: let it look at their output, exit status or files.",
    "test_tool[valgrind]": UNDER.format("valgrind"),
    "test_tool[qemu-x86_64]": UNDER.format("qemu-x86_64"),
    "test_tool[gdb --args]": UNDER.format("gdb"),
    "test_tool[strace]": UNDER.format("strace"),
    "test_shell_pipe[bad]": "./act out 52 | cat " + SHELL.format("a pipe"),
    "test_shell_redirection[bad]": SHELL.format("a redirection"),
    "test_unexpected_pass": "test_unexpected_pass passes although it is marked xfail(strict=True): remove the mark.",
    "test_something_else[bad]": "the test says the same of every output it was asked about (that of the passing run, "
    "none, made-up ones), so that nothing tells what it looks at: add a passing test that expects the same, or tell "
    "the failure by @pytest.mark.cause_chain(fails_when=...).",
    "test_earlier_run[bad]": "test_earlier_run[bad] failed at {}, but at {later} when it is run again: make it "
    "independent of other tests, time and chance first.",
    "TestUnit::test_method": "TestUnit::test_method is a unittest.TestCase method, which cannot be replayed: write a "
    "function.",
    "test_hypothesis": "test_hypothesis is a hypothesis test, which cannot be replayed: write the example as a test.",
    "test_subtests": "test_subtests uses subtests, which cannot be replayed: use pytest.mark.parametrize.",
}
