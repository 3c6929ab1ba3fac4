"""Runs inside gdb (12 or newer): carries out requests that `gdb.py` writes to a file, answers in another.

A request is a list of steps for one run of the program: reach a stop, transfer a configuration, visit (tell
frames and variables, save the memory), trace, finish. Files, because large MI replies are slow to parse.
Only the standard library of the Python inside gdb, which need not be the one pytest runs in.
"""

import json
import os
import re
import signal
import struct

import gdb

RECORDS = {gdb.TYPE_CODE_STRUCT: "struct", gdb.TYPE_CODE_UNION: "union"}
POINTERS = {gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF}
SCALARS = {
    gdb.TYPE_CODE_INT: "int",
    gdb.TYPE_CODE_CHAR: "char",
    gdb.TYPE_CODE_BOOL: "bool",
    gdb.TYPE_CODE_FLT: "float",
    gdb.TYPE_CODE_ENUM: "enum",
    gdb.TYPE_CODE_VOID: "void",
    gdb.TYPE_CODE_FUNC: "function",
}
# Stopped at, to see where: all others go straight to the program.
CRASHES = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGSYS"}
# The watchdog's sign that time is up.
HALT = "SIGSTOP"
# An endless recursion has millions of frames; the innermost and a few more tell enough.
BACKTRACE_LIMIT = 64
# What a state may weigh; a larger one is cut off here and the self-check tells.
MEMORY_LIMIT = 256 << 20
# A leaf function may keep variables below its stack pointer.
RED_ZONE = 128
WORD = struct.Struct("<Q")


class TypeTable:
    """Numbers types for the life of this gdb; a row may refer to other rows, also to itself."""

    def __init__(self):
        self.rows = []
        self.numbers = {}

    def key(self, kind):
        """gdb.Type has no identity, and two files may define different structs of one name."""
        if kind.code in POINTERS:
            return ("pointer", kind.code, self.key(basic(kind.target())))
        if kind.code == gdb.TYPE_CODE_ARRAY:
            return ("array", kind.range(), self.key(basic(kind.target())))
        if kind.code in RECORDS:
            members = tuple((f.name, getattr(f, "bitpos", None)) for f in kind.fields())
            return (kind.code, kind.tag, kind.sizeof, members)
        return (kind.code, str(kind))

    def number(self, kind):
        name = str(kind)
        kind = complete(basic(kind))
        key = self.key(kind)
        if key not in self.numbers:
            self.numbers[key] = len(self.rows)
            sized = kind.code not in (gdb.TYPE_CODE_FUNC, gdb.TYPE_CODE_VOID)
            row = {"name": name, "size": kind.sizeof if sized else 0}
            self.rows.append(row)  # before its members are looked at: types are recursive
            self.describe(kind, row)
        return self.numbers[key]

    def describe(self, kind, row):
        if kind.code in RECORDS:
            row["kind"] = RECORDS[kind.code]
            row["fields"] = [
                [f.name or "", f.bitpos, f.bitsize, self.number(f.type)]
                for f in kind.fields()
                if hasattr(f, "bitpos")  # static members have none
            ]
        elif kind.code in POINTERS:
            row.update(kind="pointer", target=self.number(kind.target()))
        elif kind.code == gdb.TYPE_CODE_ARRAY:
            low, high = kind.range()
            row.update(kind="array", target=self.number(kind.target()), count=max(0, high - low + 1))
        else:
            row["kind"] = SCALARS.get(kind.code, "other")
            if row["kind"] in ("int", "char"):
                row["signed"] = kind.is_signed
                # C's char is an integer type to DWARF; its size tells it from others.
                if kind.sizeof == 1:
                    row["kind"] = "char"
            elif row["kind"] == "enum":
                row["values"] = {f.name: f.enumval for f in kind.fields()}


def basic(kind):
    return kind.strip_typedefs().unqualified()


def complete(kind):
    """A struct that is only declared in this file may be defined in another one."""
    if kind.code in RECORDS and not kind.fields() and kind.tag:
        try:
            return basic(gdb.lookup_type(f"{RECORDS[kind.code]} {kind.tag}"))
        except gdb.error:
            pass
    return kind


TYPES = TypeTable()


def is_static(symbol):
    return symbol.is_variable and symbol.addr_class == gdb.SYMBOL_LOC_STATIC


def describe(request):
    """Functions and statements of the program's own code, and its variables of static storage.

    All addresses are those of the file: this is asked before the first run. Iterating `symtab.linetable()` can
    crash gdb 13.1, the maintenance command cannot. gdb 13 has no way down from a block to those nested in it, but
    each of them has code, and from its addresses the way leads up.
    """
    lines = line_table(request["foreign"])
    functions, statics, seen = {}, {}, set()
    for address, _, _ in lines:
        block, function = gdb.block_for_pc(address), None
        chain = []
        while block is not None:
            chain.append(block)
            if block.function and (block.superblock is None or block.superblock.is_static):
                function = block
            block = block.superblock
        if function is not None and function.start not in functions:
            symbol = function.function
            row = [symbol.name, function.start, function.end, symbol.symtab.fullname(), symbol.line]
            functions[function.start] = row
        for block in chain:
            key = (block.start, block.end, block.is_static, block.is_global)
            if key not in seen:
                seen.add(key)
                inner = not (block.is_static or block.is_global)
                add_statics(block, function.function.name if inner and function is not None else None, statics)
    for name in request["names"]:
        symbols = [gdb.lookup_global_symbol(name), *gdb.lookup_static_symbols(name)]
        add_statics([symbol for symbol in symbols if symbol is not None], None, statics)
    answer = {"functions": list(functions.values()), "lines": lines, "globals": list(statics.values())}
    return dict(answer, types=TYPES.rows)


def line_table(foreign):
    """[address, file, line] of each statement, without the files whose names start with one of `foreign`."""
    gdb.execute("maint expand-symtabs", to_string=True)
    rows, file = {}, None
    for text in gdb.execute("maint info line-table", to_string=True).splitlines():
        if text.startswith("symtab: "):
            file = text[len("symtab: ") : text.rindex(" ((struct symtab")]
        elif (row := STATEMENT.match(text)) and not file.startswith(tuple(foreign)):
            rows[int(row[2], 16)] = [int(row[2], 16), file, int(row[1])]
    return sorted(rows.values())


# INDEX LINE ADDRESS [UNRELOCATED ADDRESS] IS-STMT ...
STATEMENT = re.compile(r"\d+ +(\d+) +(0x[0-9a-f]+) +(?:0x[0-9a-f]+ +)?Y")


def add_statics(symbols, function, found):
    for symbol in symbols:
        if not is_static(symbol):
            continue
        try:
            address = int(symbol.value().address)
            number = TYPES.number(symbol.type)
        except (gdb.error, TypeError):  # only declared here, or optimised out
            continue
        file = symbol.symtab.fullname() if symbol.symtab else None
        entry = {"name": symbol.name, "file": file, "address": address, "type": number, "function": function}
        found.setdefault(address, entry)


def mappings(pid):
    with open(f"/proc/{pid}/maps") as file:
        for line in file:
            span, permissions, offset, _, _, *name = line.split(maxsplit=5)
            start, end = (int(x, 16) for x in span.split("-"))
            yield start, end, permissions, int(offset, 16), name[0].rstrip("\n") if name else ""


class Trace:
    """Counts executions of instructions without stopping there: one record (index, rsp, return address) each."""

    def __init__(self, step, base):
        self.events = []
        self.limit = step["limit"]
        self.until = step.get("until")
        self.left = self.until[1] if self.until else 0
        entries = set(step["entries"])
        self.probes = [
            Probe(self, index, base + address, address in entries, self.until and self.until[0] == address)
            for index, address in enumerate(step["addresses"])
        ]

    def delete(self):
        for probe in self.probes:
            probe.delete()


class Probe(gdb.Breakpoint):
    """At a function's first instruction the return address is on top of the stack."""

    def __init__(self, trace, index, address, is_entry, is_until):
        super().__init__(f"*{address:#x}", internal=True)
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


class Ended(Exception):
    """The program is over, or was stopped by the watchdog."""


class Run:
    """One run of the program, from its first instruction to its end or to our last step."""

    def __init__(self, request):
        self.request = request
        self.signal, self.backtrace, self.ended = None, [], None
        os.environ["SHELL"] = request["launcher"]
        gdb.execute("starti", to_string=True)
        self.pid = gdb.selected_inferior().pid
        program = request["program"]
        self.base = 0
        if request["relocated"]:
            self.base = next((m[0] for m in mappings(self.pid) if m[4] == program and m[3] == 0), 0)

    def alive(self):
        return gdb.selected_inferior().pid != 0

    def resume(self):
        """Go on until a breakpoint of ours; raises Ended at the program's end."""
        while True:
            gdb.execute("continue", to_string=True)
            if not self.alive():
                self.finish_record()
                raise Ended
            stop = LAST_STOP[0]
            if not isinstance(stop, gdb.SignalEvent):
                return
            if stop.stop_signal == HALT:
                self.ended = {"ending": "timeout", "code": int(signal.SIGKILL), "backtrace": backtrace()}
                raise Ended
            if stop.stop_signal in CRASHES:
                self.signal, self.backtrace = stop.stop_signal, backtrace()

    def finish_record(self):
        code, killer = LAST_EXIT[0], gdb.convenience_variable("_exitsignal")
        if killer is not None:
            number = int(killer)
            same = self.signal is not None and getattr(signal, self.signal, None) == number
            self.ended = {"ending": "signal", "code": number, "backtrace": self.backtrace if same else []}
        else:
            self.ended = {"ending": "exit", "code": code if code is not None else 0, "backtrace": []}

    def reach(self, step):
        for address, visit in step["stops"]:
            point = gdb.Breakpoint(f"*{self.base + address:#x}", internal=True)
            point.ignore_count = visit - 1
            try:
                self.resume()
            finally:
                point.delete()

    def trace(self, step):
        trace = Trace(step, self.base)
        try:
            self.resume()
            complete = bool(trace.until) and trace.left == 0
        except Ended:
            complete = self.ended["ending"] != "timeout"
            raise
        finally:
            trace.delete()
            with open(step["output"], "w") as file:
                json.dump({"events": trace.events, "complete": complete, "base": self.base}, file)

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
        for holder, at, block, offset in step["references"]:
            place = at if holder is None else blocks[holder] + at
            inferior.write_memory(place, WORD.pack(blocks[block] + offset))
        if step["stdin"] is not None:
            self.replace_stdin(bytes.fromhex(step["stdin"]))

    def replace_stdin(self, rest):
        """The unread rest of the input becomes another: the file is ours, so it is rewritten in place."""
        with open(f"/proc/{self.pid}/fdinfo/0") as file:
            position = int(file.readline().split()[1])
        with open(f"/proc/{self.pid}/fd/0", "r+b", buffering=0) as file:
            file.truncate(position)
            file.seek(position)
            file.write(rest)
        address = stdin_address()
        if address:
            inferior = gdb.selected_inferior()
            end = bytes(inferior.read_memory(address + READ_END, 8))
            inferior.write_memory(address + READ_POINTER, end)

    def call(self, function, argument):
        address = function_address(function)
        return int(gdb.parse_and_eval(f"((unsigned long (*)(unsigned long)) {address:#x})({argument})"))

    def visit(self, step):
        frames = describe_frames(self.base)
        regions = self.save_memory(step["memory"], frames[0]["sp"])
        answer = {"base": self.base, "frames": frames, "regions": regions, "stdin": self.stdin_state()}
        answer["arguments"] = argument_block(self.pid)
        answer["types"] = TYPES.rows[step["types_known"] :]
        with open(step["output"], "w") as file:
            json.dump(answer, file)

    def stdin_state(self):
        """How far the input has been read: by the kernel's count, less what still waits in stdio's buffer."""
        try:
            with open(f"/proc/{self.pid}/fdinfo/0") as file:
                position = int(file.readline().split()[1])
        except OSError:
            return None
        waiting = 0
        address = stdin_address()
        if address:
            pointers = bytes(gdb.selected_inferior().read_memory(address, READ_END + 8))
            waiting = WORD.unpack_from(pointers, READ_END)[0] - WORD.unpack_from(pointers, READ_POINTER)[0]
        return position - waiting

    def save_memory(self, path, sp):
        """All writable memory of the program itself and its read-only data; the stack from its top on."""
        saved, position = [], 0
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory, open(path, "wb") as output:
            for start, end, permissions, _, name in mappings(self.pid):
                own = name == self.request["program"]
                if "r" not in permissions or not (own or name in ("", "[heap]", "[stack]")):
                    continue
                if name == "[stack]":
                    start = max(start, (sp - RED_ZONE) & ~4095)
                size = min(end - start, MEMORY_LIMIT - position)
                if size <= 0:
                    break
                try:
                    memory.seek(start)
                    data = memory.read(size)
                except OSError:
                    continue
                output.write(data)
                kind = "image" if own else name.strip("[]") or "anonymous"
                saved.append([start, len(data), position, kind])
                position += len(data)
        return saved

    def finish(self, step):
        while True:
            self.resume()


# struct _IO_FILE of glibc: int flags, then the read pointer and the end of what was read.
READ_POINTER, READ_END = 8, 16
FUNCTIONS = {}


def function_address(name):
    """Address of a function or object of the C library; its symbols are read once, later runs only add the base."""
    if name not in FUNCTIONS:
        gdb.execute("sharedlibrary libc", to_string=True)
        try:
            value = gdb.parse_and_eval(f"(unsigned long) &{name}")
        except gdb.error:
            FUNCTIONS[name] = None
            return None
        library = gdb.solib_name(int(value))
        base = load_base(library) if library else 0
        FUNCTIONS[name] = (library, int(value) - base)
    if FUNCTIONS[name] is None:
        return None
    library, offset = FUNCTIONS[name]
    return (load_base(library) if library else 0) + offset


def load_base(library):
    real = os.path.realpath(library)
    pid = gdb.selected_inferior().pid
    return next(m[0] for m in mappings(pid) if m[4] in (library, real) and m[3] == 0)


def stdin_address():
    try:
        return function_address("_IO_2_1_stdin_")
    except (gdb.error, StopIteration):
        return None


def argument_block(pid):
    """Where the kernel put the strings of argv and the environment."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end, env_start, env_end = (int(fields[i]) for i in (45, 46, 47, 48))
    return {"start": start, "end": end, "environment_start": env_start, "environment_end": env_end}


def backtrace():
    """Innermost frames with names; the libraries' symbols are read only now, a crash being rare."""
    gdb.execute("sharedlibrary", to_string=True)
    frames, frame = [], gdb.newest_frame()
    while frame is not None and len(frames) < BACKTRACE_LIMIT:
        position = frame.find_sal()
        file = position.symtab.fullname() if position.symtab else None
        frames.append({"function": frame.name() or "??", "file": file, "line": position.line if file else 0})
        try:
            frame = frame.older()
        except gdb.error:
            break
    return frames


def describe_frames(base):
    result, frame = [], gdb.newest_frame()
    while frame is not None:
        position = frame.find_sal()
        entry = {
            "function": frame.name() or "??",
            "pc": frame.pc() - base,
            "sp": int(frame.read_register("rsp")) & (1 << 64) - 1,
            "line": position.line,
            "file": position.symtab.fullname() if position.symtab else None,
            "variables": describe_variables(frame, position),
        }
        result.append(entry)
        frame = frame.older()
    return result


def describe_variables(frame, position):
    try:
        block = frame.block()
    except RuntimeError:  # code without debug information
        return []
    variables, depth = [], 0
    while block is not None and not block.is_static and not block.is_global:
        for symbol in block:
            if (symbol.is_variable or symbol.is_argument) and not is_static(symbol):
                # Holds for unoptimised code: at its own line and before, a variable still holds garbage.
                pending = not symbol.is_argument and symbol.line >= position.line
                variables.append(describe_variable(symbol, frame, depth, pending))
        if block.function:
            break
        block, depth = block.superblock, depth + 1
    return variables


def describe_variable(symbol, frame, depth, pending):
    entry = {"name": symbol.name, "line": symbol.line, "depth": depth, "pending": pending, "address": None}
    try:
        value = symbol.value(frame)
        if not value.is_optimized_out and value.address is not None:  # else it lives in a register
            entry["address"] = int(value.address)
            entry["type"] = TYPES.number(value.type)
    except gdb.error:
        pass
    return entry


STEPS = {"reach": Run.reach, "trace": Run.trace, "transfer": Run.transfer, "visit": Run.visit, "finish": Run.finish}


def run(request):
    if gdb.selected_inferior().pid:
        gdb.execute("kill", to_string=True)
    current, done = Run(request), 0
    try:
        for step in request["steps"]:
            STEPS[step["do"]](current, step)
            done += 1
    except Ended:
        pass
    finally:
        if current.alive():
            gdb.execute("kill", to_string=True)
    return {"done": done, "ended": current.ended}


JOBS = {"describe": describe, "run": run}
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
            reply = {"error": f"{type(error).__name__}: {error}"}
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
gdb.execute(f"handle {' '.join(sorted(CRASHES))} {HALT} stop print pass", to_string=True)
Carry("-causechain")
Sync("-causechain-sync")
