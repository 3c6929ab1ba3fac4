"""Runs inside gdb (12 or newer): carries out requests that `gdb.py` writes to a file, answers in another.

A request is a list of steps for one run of the program: reach a stop, transfer a configuration, visit (tell
frames and variables, save the memory), trace, finish. Files, because large MI replies are slow to parse.
Only the standard library of the Python inside gdb, which need not be the one pytest runs in.
"""

import json
import os
import re
import resource
import signal
import struct
import sys

import gdb

sys.path.append(os.path.dirname(__file__))
from agent_symbols import (
    TYPES,
    backtrace,
    describe,
    describe_frames,
    describe_layouts,
)

# Stopped at, to see where: all others go straight to the program.
CRASHES = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGSYS"}
# The watchdog's sign that time is up.
HALT = "SIGSTOP"
# What a state may weigh; a larger one is cut off here and the self-check tells.
MEMORY_LIMIT = 256 << 20
# No program fills such a mapping; sanitizers reserve them for their own books.
ANONYMOUS_LIMIT = 64 << 20
# A leaf function may keep variables below its stack pointer.
RED_ZONE = 128
# An altered program may ask for anything: these keep it from harming the machine.
LIMITS = {resource.RLIMIT_FSIZE: 64 << 20, resource.RLIMIT_STACK: 8 << 20, resource.RLIMIT_CORE: 0}
WORD = struct.Struct("<Q")
AT_ENTRY = 9
# Only its executions count: which thread comes first to a place is a matter of chance.
FIRST_THREAD = 1
# A bit of /proc/PID/personality: ADDR_NO_RANDOMIZE.
NO_RANDOMIZATION = 0x0040000


LOADED = {}


def load_libraries(libraries):
    """Read the symbols of libraries ([path, base]), once; gdb itself would read them anew in each process."""
    wanted = dict(libraries)
    for path, base in list(LOADED.items()):
        if wanted.get(path) != base:
            gdb.execute("remove-symbol-file " + quote(path), to_string=True)
            del LOADED[path]
    for path, base in wanted.items():
        if path not in LOADED:
            gdb.execute(f"add-symbol-file {quote(path)} -o {base:#x}", to_string=True)
            LOADED[path] = base


def quote(path):
    """As an argument of a gdb command."""
    return re.sub(r"([^\w/.-])", r"\\\1", path)


def mappings(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            span, permissions, offset, _, _, *name = line.split(maxsplit=5)
            start, end = (int(x, 16) for x in span.split("-"))
            yield start, end, permissions, int(offset, 16), name[0].rstrip("\n") if name else ""


class Trace:
    """Counts executions of instructions without stopping there: one record (index, rsp, return address) each."""

    def __init__(self, step):
        self.events = []
        self.limit = step["limit"]
        self.until = step.get("until")
        self.left = self.until[1] if self.until else 0
        entries = set(step["entries"])
        self.probes = [
            Probe(self, index, address, address in entries, self.until and self.until[0] == address)
            for index, address in enumerate(step["addresses"])
        ]

    def delete(self):
        for probe in self.probes:
            probe.delete()


class Probe(gdb.Breakpoint):
    """At a function's first instruction the return address is on top of the stack."""

    def __init__(self, trace, index, address, is_entry, is_until):
        super().__init__(f"*{address:#x}", internal=True)
        self.thread = FIRST_THREAD
        self.trace, self.index, self.is_entry, self.is_until = trace, index, is_entry, is_until

    def stop(self):
        trace = self.trace
        if self.is_until:
            trace.left -= 1
            if trace.left == 0:
                return True
        sp = int(gdb.selected_frame().read_register("rsp"))
        back = WORD.unpack(gdb.selected_inferior().read_memory(sp, 8))[0] if self.is_entry else 0
        trace.events.append((self.index, sp, back))
        return len(trace.events) >= trace.limit


class AddressesVary(Exception):
    """What is written to an address in one run would hit something else in the next."""


class Ended(Exception):
    """The program is over, or was stopped by the watchdog."""


class Run:
    """One run of the program, from its first instruction to its end or to our last step."""

    def __init__(self, request):
        self.request = request
        self.signal, self.backtrace, self.ended = None, [], None
        program = request["program"]
        if gdb.current_progspace().filename != program:  # the last run became another program by an exec
            gdb.execute("file " + quote(program), to_string=True)
        load_libraries(request["libraries"])
        os.environ["SHELL"] = request["launcher"]
        gdb.execute("starti", to_string=True)
        self.pid = gdb.selected_inferior().pid
        self.limit()
        if not fixed_addresses(self.pid):
            gdb.execute("kill", to_string=True)
            raise AddressesVary

    def limit(self):
        """Hard limits too: a program may raise its soft ones."""
        for kind, value in LIMITS.items():
            hard = resource.prlimit(self.pid, kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.prlimit(self.pid, kind, (value, value))

    def alive(self):
        return gdb.selected_inferior().pid != 0

    def resume(self):
        """Go on until a breakpoint of ours; raises Ended at the program's end."""
        command = "continue"
        while True:
            gdb.execute(command, to_string=True)
            if not self.alive():
                self.finish_record()
                raise Ended
            stop = LAST_STOP[0]
            if isinstance(stop, gdb.BreakpointEvent):
                return
            # A SIGTRAP of the program's own makes no SignalEvent, and gdb keeps it to itself.
            sign = stop.stop_signal if isinstance(stop, gdb.SignalEvent) else "SIGTRAP"
            command = "signal SIGTRAP" if sign == "SIGTRAP" else "continue"
            if sign == HALT:
                self.ended = {"ending": "timeout", "code": int(signal.SIGKILL), "backtrace": backtrace()}
                raise Ended
            if sign in CRASHES or sign == "SIGTRAP":
                self.signal, self.backtrace = sign, backtrace()

    def finish_record(self):
        code, killer = LAST_EXIT[0], gdb.convenience_variable("_exitsignal")
        if killer is not None:
            number = int(killer)
            if number == signal.SIGXFSZ:  # the limit is ours
                self.ended = {"ending": "timeout", "code": number, "backtrace": []}
                return
            same = self.signal is not None and getattr(signal, self.signal, None) == number
            self.ended = {"ending": "signal", "code": number, "backtrace": self.backtrace if same else []}
        else:
            self.ended = {"ending": "exit", "code": code if code is not None else 0, "backtrace": []}

    def reach_entry(self):
        """The program's own first instruction: all libraries are in their places by then."""
        entry = entry_point(self.pid)
        if gdb.newest_frame().pc() != entry:  # as it is in a static program
            self.reach({"stops": [[entry, 1]]})

    def mappings(self, step):
        with open(step["output"], "w") as file:
            json.dump(list(mappings(self.pid)), file)

    def reach(self, step):
        for address, visit in step["stops"]:
            point = gdb.Breakpoint(f"*{address:#x}", internal=True)
            point.ignore_count = visit - 1
            point.thread = FIRST_THREAD
            try:
                self.resume()
            finally:
                point.delete()

    def trace(self, step):
        trace = Trace(step)
        try:
            self.resume()
            complete = bool(trace.until) and trace.left == 0
        except Ended:
            complete = self.ended["ending"] != "timeout"
            raise
        finally:
            trace.delete()
            with open(step["output"], "w") as file:
                json.dump({"events": trace.events, "complete": complete}, file)

    def transfer(self, step):
        inferior = gdb.selected_inferior()
        blocks = []
        for allocation in step["allocations"]:
            address = self.call("malloc", allocation["size"])
            if not address:
                raise gdb.error("malloc gave no memory")
            blocks.append(address)
            inferior.write_memory(address, bytes.fromhex(allocation["data"]))
        for address, data in step["writes"]:
            inferior.write_memory(address, bytes.fromhex(data))
        for name, place, data in step["registers"]:
            write_register(name, place, bytes.fromhex(data))
        for holder, at, block, offset in step["references"]:
            value = WORD.pack(blocks[block] + offset)
            if isinstance(at, str):
                write_register(at, 0, value)
            else:
                inferior.write_memory(at if holder is None else blocks[holder] + at, value)
        if step["stdin"] is not None:
            self.replace_stdin(bytes.fromhex(step["stdin"]))

    def stdin_is_ours(self):
        """Not once the program has closed it or opened another file in its place."""
        try:
            return os.path.samefile(f"/proc/{self.pid}/fd/0", self.request["stdin"])
        except OSError:
            return False

    def replace_stdin(self, rest):
        """The unread rest of the input becomes another: the file is ours, so it is rewritten in place."""
        if not self.stdin_is_ours():
            return  # nothing more will be read from it
        position = self.file_position()
        with open(self.request["stdin"], "r+b", buffering=0) as file:
            file.truncate(position)
            file.seek(position)
            file.write(rest)
        address = stdin_address()
        if address:
            inferior = gdb.selected_inferior()
            end = bytes(inferior.read_memory(address + READ_END, 8))
            inferior.write_memory(address + READ_POINTER, end)
            if rest:
                flags = FLAGS.unpack(inferior.read_memory(address, FLAGS.size))[0]
                inferior.write_memory(address, FLAGS.pack(flags & ~END_SEEN))

    def file_position(self):
        with open(f"/proc/{self.pid}/fdinfo/0") as file:
            return int(file.readline().split()[1])

    def call(self, function, argument):
        address = function_address(function)
        return int(gdb.parse_and_eval(f"((unsigned long (*)(unsigned long)) {address:#x})({argument})"))

    def visit(self, step):
        frames = describe_frames()
        regions, unreadable = self.save_memory(step["memory"], frames[0]["sp"])
        answer = {"frames": frames, "regions": regions, "unreadable": unreadable, "stdin": self.stdin_state()}
        answer["arguments"] = argument_block(self.pid)
        answer["registers"] = {name: read_register(name) for name in step["registers"]}
        answer["mappings"] = [[start, end, name] for start, end, _, _, name in mappings(self.pid)]
        answer["thread_pointer"] = read_register("fs_base")
        answer["types"] = TYPES.rows[step["types_known"] :]
        with open(step["output"], "w") as file:
            json.dump(answer, file)

    def stdin_state(self):
        """How far the input has been read: by the kernel's count, less what still waits in stdio's buffer."""
        if not self.stdin_is_ours():
            return None
        position = self.file_position()
        waiting = 0
        address = stdin_address()
        if address:
            pointers = bytes(gdb.selected_inferior().read_memory(address, READ_END + 8))
            waiting = WORD.unpack_from(pointers, READ_END)[0] - WORD.unpack_from(pointers, READ_POINTER)[0]
        return position - waiting

    def save_memory(self, path, sp):
        """All writable memory of the program itself and its read-only data; the stack from its top on. And the number
        of bytes that could not be read of it."""
        saved, position, unreadable = [], 0, 0
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory, open(path, "wb") as output:
            # Without the stack nothing leads to the rest.
            for start, end, permissions, _, name in sorted(mappings(self.pid), key=lambda row: row[4] != "[stack]"):
                own = name in self.request["own"]
                if "r" not in permissions or not (own or name in ("", "[heap]", "[stack]")):
                    continue
                if not name and end - start > ANONYMOUS_LIMIT:
                    continue
                if name == "[stack]":
                    start = max(start, (sp - RED_ZONE) & ~4095)
                try:
                    memory.seek(start)
                    data = memory.read(min(end - start, MEMORY_LIMIT - position))
                except OSError:
                    data = b""
                unreadable += end - start - len(data)
                if not data:
                    continue
                output.write(data)
                kind = "image" if own else name.strip("[]") or "anonymous"
                saved.append([start, len(data), position, kind])
                position += len(data)
        return saved, unreadable

    def finish(self, step):
        while True:
            self.resume()


# struct _IO_FILE of glibc: int flags, then the read pointer and the end of what was read. Once the end of the file
# was seen nothing is read any more.
FLAGS, READ_POINTER, READ_END = struct.Struct("<I"), 8, 16
END_SEEN = 0x10
FUNCTIONS = {}


def function_address(name):
    """Address of a function or object of the C library; its symbols are read once, later runs only add the base.

    A gdb.error where there is none: before the library is loaded, or in a static program that does not need it."""
    if name not in FUNCTIONS:
        gdb.execute("sharedlibrary libc", to_string=True)
        value = int(gdb.parse_and_eval(f"(unsigned long) &{name}"))
        library = gdb.solib_name(value)
        FUNCTIONS[name] = (library, value - (load_base(library) if library else 0))
    library, offset = FUNCTIONS[name]
    return (load_base(library) if library else 0) + offset


def load_base(library):
    real = os.path.realpath(library)
    pid = gdb.selected_inferior().pid
    for start, _, _, offset, name in mappings(pid):
        if name in (library, real) and offset == 0:
            return start
    raise gdb.error(f"{library} is not loaded")


def fixed_addresses(pid):
    """gdb asks for them, but many containers forbid the call that it takes."""
    with open("/proc/sys/kernel/randomize_va_space") as file:
        if file.read().strip() == "0":
            return True
    with open(f"/proc/{pid}/personality") as file:
        return bool(int(file.read(), 16) & NO_RANDOMIZATION)


def read_register(name):
    return int(gdb.newest_frame().read_register(name)) & (1 << 64) - 1


def write_register(name, place, data):
    merged = bytearray(WORD.pack(read_register(name)))
    merged[place : place + len(data)] = data
    gdb.newest_frame().select()
    gdb.execute(f"set ${name} = {WORD.unpack(merged)[0]:#x}", to_string=True)


def stdin_address():
    try:
        return function_address("_IO_2_1_stdin_")
    except gdb.error:
        return None


def argument_block(pid):
    """Where the kernel put the strings of argv and the environment."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end, env_start, env_end = (int(fields[i]) for i in (45, 46, 47, 48))
    return {"start": start, "end": end, "environment_start": env_start, "environment_end": env_end}


def entry_point(pid):
    with open(f"/proc/{pid}/auxv", "rb") as file:
        return dict(struct.iter_unpack("<QQ", file.read()))[AT_ENTRY]


STEPS = {
    "reach": Run.reach,
    "trace": Run.trace,
    "transfer": Run.transfer,
    "visit": Run.visit,
    "mappings": Run.mappings,
    "finish": Run.finish,
}


def run(request):
    if gdb.selected_inferior().pid:
        gdb.execute("kill", to_string=True)
    current, done = Run(request), 0
    try:
        current.reach_entry()
        for step in request["steps"]:
            STEPS[step["do"]](current, step)
            done += 1
    except Ended:
        pass
    finally:
        if current.alive():
            gdb.execute("kill", to_string=True)
    return {"done": done, "ended": current.ended}


def look(request):
    """Frames and variables of a process that somebody else started and stopped; it does not survive this."""
    load_libraries(request["libraries"])
    gdb.execute(f"attach {request['pid']}", to_string=True)
    try:
        next(t for t in gdb.selected_inferior().threads() if t.ptid[1] == request["thread"]).switch()
        if request["backtrace"]:
            return {"backtrace": backtrace()}
        answer = {"frames": describe_frames(), "layouts": describe_layouts(request["wanted"])}
        return dict(answer, types=TYPES.rows[request["types_known"] :])
    finally:
        gdb.execute("kill", to_string=True)


def prepare(request):
    """Go on with the types of an earlier gdb, and read the libraries' symbols."""
    TYPES.recall(request["types"])
    load_libraries(request["libraries"])
    return {}


JOBS = {"prepare": prepare, "describe": describe, "run": run, "look": look}
LAST_STOP, LAST_EXIT = [None], [None]


def note_stop(event):
    LAST_STOP[0] = event


def note_exit(event):
    LAST_EXIT[0] = getattr(event, "exit_code", None)


class Carry(gdb.MICommand):
    """-causechain REQUEST REPLY"""

    def invoke(self, arguments):
        with open(arguments[0]) as file:
            request = json.load(file)
        try:
            reply = JOBS[request["job"]](request)
        except Exception as error:  # whatever it is, the other side must hear of it
            reply = {"error": f"{type(error).__name__}: {error}", "kind": type(error).__name__}
        with open(arguments[1], "w") as file:
            json.dump(reply, file)


class Sync(gdb.MICommand):
    """-causechain-sync: answered when all before it is done.

    A command that resumes the program is answered with ^running at once and with nothing at its end."""

    def invoke(self, arguments):
        return {}


gdb.events.stop.connect(note_stop)
gdb.events.exited.connect(note_exit)
gdb.execute("handle all nostop print pass", to_string=True)
# "All" are without those that gdb itself needs.
gdb.execute("handle SIGINT nostop print pass", to_string=True)
gdb.execute(f"handle {' '.join(sorted(CRASHES))} {HALT} stop print pass", to_string=True)
Carry("-causechain")
Sync("-causechain-sync")
