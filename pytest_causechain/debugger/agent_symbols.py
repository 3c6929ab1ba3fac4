# mypy: ignore-errors
"""What gdb knows of a program: types, functions, statements, variables, frames. A part of the agent."""

import hashlib
import re
from itertools import islice

import gdb
from agent_library import describe_container, find_nodes, held_type, is_made_of_nodes, name_member, shorten_name, tag_of

RECORDS = {gdb.TYPE_CODE_STRUCT: "struct", gdb.TYPE_CODE_UNION: "union"}
POINTERS = {gdb.TYPE_CODE_PTR, gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF}
REFERENCES = {gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF}
SCALARS = {
    gdb.TYPE_CODE_INT: "int",
    gdb.TYPE_CODE_CHAR: "char",
    gdb.TYPE_CODE_BOOL: "bool",
    gdb.TYPE_CODE_FLT: "float",
    gdb.TYPE_CODE_ENUM: "enum",
    gdb.TYPE_CODE_VOID: "void",
    gdb.TYPE_CODE_FUNC: "function",
}
# Two of a million types get one key once in 37 million programs.
KEY_BYTES = 8
# An endless recursion has millions of frames; the innermost and a few more tell enough.
BACKTRACE_LIMIT = 64


# Of the containers' own names for types, such as `std::vector<Item>::value_type`, nobody thinks.
LIBRARY_ALIAS = re.compile(r"std::.*::\w+$")


class TypeNumbers:
    """Numbers types for the life of this gdb; a row may refer to other rows, also to itself.

    Its `key` makes it out again in a later gdb, which goes on where this one ended."""

    def __init__(self):
        self.rows = []
        self.numbers = {}

    def recall(self, rows):
        self.rows = rows
        self.numbers = {row["key"]: number for number, row in enumerate(rows)}

    def key(self, kind):
        """gdb.Type has no identity, and two files may define different structs of one name."""
        if kind.code in POINTERS:
            return ("pointer", kind.code, self.key(basic(kind.target())))
        if kind.code == gdb.TYPE_CODE_ARRAY:
            return ("array", kind.range(), self.key(basic(kind.target())))
        if kind.code in RECORDS:
            members = tuple((f.name, getattr(f, "bitpos", None)) for f in kind.fields())
            return (kind.code, kind.tag, kind.sizeof, members)
        values = [(f.name, f.enumval) for f in kind.fields()] if kind.code == gdb.TYPE_CODE_ENUM else []
        return (kind.code, str(kind), *values)  # many enumerations have no name

    def number(self, kind, nodes=None, is_base=False):
        """`nodes` is told of what a container is made of: the base its pointers know, and the type of its nodes. A base
        class leaves its own virtual bases to the whole object."""
        name = str(kind.unqualified())  # not as it is where it is met first
        kind = complete(basic(kind))
        if LIBRARY_ALIAS.match(name):
            name = str(kind)
        name = shorten_name(name)
        if (held := held_type(kind)) is not None:
            return self.number(held)
        if kind.code in RECORDS:
            nodes = find_nodes(kind) or (nodes if is_made_of_nodes(kind) else None)
        elif kind.code in POINTERS and nodes is not None and tag_of(basic(kind.target())) == nodes[0]:
            kind = nodes[1].pointer()
        whole = self.key(kind) if nodes is None else (self.key(kind), nodes[0], self.key(nodes[1]))
        is_base = is_base and bool(virtual_bases(kind))
        text = repr((whole, "base") if is_base else whole).encode("utf-8", "surrogateescape")
        key = hashlib.blake2b(text, digest_size=KEY_BYTES).hexdigest()
        if key not in self.numbers:
            self.numbers[key] = len(self.rows)
            sized = kind.code not in (gdb.TYPE_CODE_FUNC, gdb.TYPE_CODE_VOID)
            row = {"name": name, "size": kind.sizeof if sized else 0, "key": key}
            self.rows.append(row)  # before its members are looked at: types are recursive
            self.describe(kind, row, nodes)
            if kind.code in RECORDS and not is_base:
                self.add_virtual_bases(kind, row)
        return self.numbers[key]

    def fill_unknown(self, kind, row):
        """A member of a class that only the library knows reaches to the next member. Whatever is in it may be a
        pointer."""
        ends = [field[1] // 8 for field in row["fields"][1:]] + [kind.sizeof]
        for field, end in zip(row["fields"], ends, strict=False):
            size = end - field[1] // 8
            if self.rows[field[3]].get("fields") == [] and not self.rows[field[3]]["size"] and size >= 8:
                field[3] = self.number_words(size // 8)

    def number_words(self, count):
        key = f"words {count}"
        if key not in self.numbers:
            pointer = self.number(gdb.lookup_type("void").pointer())
            words = [[f"word{n}", n * 64, 0, pointer] for n in range(count)]
            self.numbers[key] = len(self.rows)
            self.rows.append({"name": "opaque", "size": count * 8, "key": key, "kind": "union", "fields": words})
        return self.numbers[key]

    def add_virtual_bases(self, kind, row):
        """Where they lie in a whole object, the table of its class says, before all else."""
        bases = virtual_bases(kind)
        for index, base in enumerate(bases):
            try:
                table = int(gdb.parse_and_eval(f"(long) &'vtable for {kind.tag}'"))
                place = table + (len(bases) - 1 - index) * 8
                offset = int(gdb.parse_and_eval(f"*(long *) {place}"))
            except gdb.error:  # a class of the library, or one of which there are no whole objects
                return
            if 0 < offset <= kind.sizeof - base.sizeof:
                row["fields"].append(["", offset * 8, 0, self.number(base, is_base=True)])
        row["fields"].sort(key=lambda field: field[1])

    def describe(self, kind, row, nodes):
        if kind.code in RECORDS:
            row["kind"] = RECORDS[kind.code]
            # Static members have no place; that of a virtual base is known only to the object.
            placed = [f for f in kind.fields() if getattr(f, "bitpos", None) is not None]
            row["fields"] = [
                [name_member(kind, f), f.bitpos, f.bitsize, self.number(f.type, nodes, f.is_base_class)] for f in placed
            ]
            self.fill_unknown(kind, row)
            if (container := describe_container(kind, self.number)) is not None:
                row["container"] = container
        elif kind.code in POINTERS:
            row.update(kind="pointer", target=self.number(kind.target(), nodes))
        elif kind.code == gdb.TYPE_CODE_ARRAY:
            low, high = kind.range()
            row.update(kind="array", target=self.number(kind.target()), count=max(0, high - low + 1))
        elif kind.code == gdb.TYPE_CODE_COMPLEX:
            row.update(kind="complex", target=self.number(kind.target()))
        else:
            row["kind"] = SCALARS.get(kind.code, "other")
            if row["kind"] in ("int", "char"):
                row["signed"] = kind.is_signed
                # C's char is an integer type to DWARF; its size tells it from others.
                if kind.sizeof == 1:
                    row["kind"] = "char"
            elif row["kind"] == "enum":
                row["values"] = {f.name: f.enumval for f in kind.fields()}


def virtual_bases(kind):
    """Of a class and its bases, each once, in the order in which they are met."""
    found = {}
    for field in kind.fields() if kind.code in RECORDS else ():
        if field.is_base_class:
            base = basic(field.type)
            found.update((other.tag, other) for other in virtual_bases(base))
            if getattr(field, "bitpos", None) is None:
                found.setdefault(base.tag, base)
    return list(found.values())


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


TYPES = TypeNumbers()


def is_static(symbol):
    return symbol.is_variable and symbol.addr_class == gdb.SYMBOL_LOC_STATIC


def describe(request):
    """Functions and statements of the program's own code, and its variables of static storage.

    All addresses are those of the file: this is asked before the first run. Iterating `symtab.linetable()` can
    crash gdb 13.1, the maintenance command cannot. gdb 13 has no way down from a block to those nested in it, but
    each of them has code, and from its addresses the way leads up.
    """
    lines = line_table(request["foreign"])
    functions, signatures, statics, seen = {}, {}, {}, set()
    for address, _, _ in lines:
        chain = around(gdb.block_for_pc(address))
        function = holding_function(chain)
        if function is not None and function.start not in functions:
            symbol = function.function
            # Of an optimised function some parts may lie elsewhere, even before its first instruction.
            entry = int(symbol.value().address)
            name = remove_parameters(symbol.name)
            functions[function.start] = [name, entry, function.end, symbol.symtab.fullname(), symbol.line]
            signatures[entry] = describe_signature(function)
        for depth, block in enumerate(chain):
            key = (block.start, block.end, block.is_static, block.is_global)
            if key not in seen:
                seen.add(key)
                owner = holding_function(chain[depth:])
                add_statics(block, remove_parameters(owner.function.name) if owner else None, statics)
    for name in request["names"]:
        symbols = [gdb.lookup_global_symbol(name), *gdb.lookup_static_symbols(name)]
        add_statics([symbol for symbol in symbols if symbol is not None], None, statics)
    answer = {"functions": list(functions.values()), "lines": lines, "globals": list(statics.values())}
    return dict(answer, signatures=list(signatures.items()), vtables=find_vtables(), types=TYPES.rows)


def find_vtables():
    """[address, type] of the table of each class with virtual functions: it tells the type of an object."""
    found = []
    for address, name in VTABLE.findall(gdb.execute("info variables ^vtable for ", to_string=True)):
        try:
            found.append([int(address, 16), TYPES.number(gdb.lookup_type(name))])
        except gdb.error:  # a class of which only the library knows more
            continue
    return sorted(found)


VTABLE = re.compile(r"^(0x[0-9a-f]+) +vtable for (.*?)(?:@\S+)?$", re.MULTILINE)


def describe_signature(function):
    """Names and types of a function's parameters, and the type it returns; None where gdb cannot tell them."""
    try:
        parameters = [[symbol.name, TYPES.number(symbol.type)] for symbol in function if symbol.is_argument]
        return [parameters, TYPES.number(function.function.type.target())]
    except gdb.error:
        return None


def around(block):
    """A block and all around it."""
    chain = []
    while block is not None:
        chain.append(block)
        block = block.superblock
    return chain


def holding_function(chain):
    """Of a block and all around it: the function whose code it is. One that was inlined lies within another one;
    a lambda is only declared there."""
    found = None
    for block in chain:
        if block.function and (found is None or (block.start <= found.start and found.end <= block.end)):
            found = block
    return found


def remove_parameters(name):
    """`shop::Item::cost() const` as frames have it: `shop::Item::cost`. In C there is nothing to remove."""
    depth = 0
    for index in range(name.rfind(")"), -1, -1):
        depth += (name[index] == ")") - (name[index] == "(")
        if not depth:
            return name[:index]
    return name


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
        is_thread = is_of_thread(symbol)
        if (not is_static(symbol) and not is_thread) or basic(symbol.type).code in REFERENCES:
            continue
        file = symbol.symtab.fullname() if symbol.symtab else None
        try:
            address = None if is_thread else int(symbol.value().address)
            number = TYPES.number(symbol.type)
        except (gdb.error, TypeError):  # only declared here, or optimised out
            continue
        entry = {"name": symbol.name, "file": file, "address": address, "type": number, "function": function}
        found.setdefault((symbol.name, file) if is_thread else address, entry)


def is_of_thread(symbol):
    """Its address is computed, but not from a frame."""
    return symbol.is_variable and symbol.addr_class == gdb.SYMBOL_LOC_COMPUTED and not symbol.needs_frame


def backtrace():
    """Innermost frames with names; the libraries' symbols are read only now, a crash being rare."""
    gdb.execute("sharedlibrary", to_string=True)
    frames = []
    for frame in islice(walk_stack(), BACKTRACE_LIMIT):
        position = frame.find_sal()
        file = position.symtab.fullname() if position.symtab else None
        frames.append({"function": frame.name() or "??", "file": file, "line": position.line if file else 0})
    return frames


def walk_stack():
    """Innermost frame first, up to where a broken stack leads nowhere."""
    frame = gdb.newest_frame()
    while frame is not None:
        yield frame
        try:
            frame = frame.older()
        except gdb.error:
            return


def read_register(frame, name):
    return int(frame.read_register(name)) & (1 << 64) - 1


def describe_frames():
    result = []
    for frame in walk_stack():
        position = frame.find_sal()
        entry = {
            "function": frame.name() or "??",
            "pc": frame.pc(),
            "sp": read_register(frame, "rsp"),
            "base": read_register(frame, "rbp"),
            "line": position.line,
            "file": position.symtab.fullname() if position.symtab else None,
            "variables": [*describe_variables(frame, position), *describe_return(frame)],
        }
        result.append(entry)
    return result


def describe_variables(frame, position):
    try:
        blocks = scopes(frame.block())
    except RuntimeError:  # code without debug information
        return []
    variables = []
    frame.select()  # the length of an array may be kept in a variable, which gdb looks up there
    for depth, block in reversed(list(enumerate(reversed(blocks)))):
        for symbol in block:
            if is_local(symbol):
                # Holds for unoptimised code: before its own line, and where that begins, a variable still holds
                # garbage. A frame that waits for a call stands behind the beginning of its line. Lines of another
                # file, which a parser was made from, say nothing.
                line = position.line if frame.pc() == position.pc else position.line + 1
                is_here = position.symtab is not None and position.symtab.filename == symbol.symtab.filename
                pending = not symbol.is_argument and is_here and symbol.line >= line
                variables.append(describe_live_variable(symbol, frame, depth, pending))
    return variables


def scopes(block):
    """A block and those around it, up to that of the function."""
    found = []
    while block is not None and not block.is_static and not block.is_global:
        found.append(block)
        block = None if block.function else block.superblock
    return found


def is_local(symbol):
    return (symbol.is_variable or symbol.is_argument) and not is_static(symbol) and not is_of_thread(symbol)


def describe_layouts(wanted):
    """For functions on the stack ([entry, addresses of its statements]): all their blocks, and where the variables
    of each lie, wherever in the function it is stopped. None for one whose variables have no fixed places."""
    layouts, by_entry = {}, dict(wanted)
    for frame in walk_stack():
        function = frame.function()
        entry = int(function.value().address) if function is not None else None
        if entry in by_entry and str(entry) not in layouts:
            layouts[str(entry)] = describe_layout(frame, by_entry[entry])
    return layouts


def describe_layout(frame, addresses):
    blocks = {}
    for address in addresses:
        around = scopes(gdb.block_for_pc(address))
        for depth, block in enumerate(reversed(around)):
            if (block.start, block.end) in blocks:
                continue
            variables = []
            for symbol in block:
                if is_local(symbol):
                    if symbol.type.dynamic:  # an array whose length was computed
                        return None
                    entry = describe_variable(symbol, frame, depth, False, address)
                    if entry["address"] is None:
                        entry["register"] = registers_at(address).get(symbol.name)
                    variables.append(dict(entry, is_argument=symbol.is_argument))
            blocks[block.start, block.end] = [block.start, block.end, variables]
    rbp = read_register(frame, "rbp")
    answer = {"rbp": rbp, "blocks": list(blocks.values()), "returns": return_type(frame.function())}
    return dict(answer, saved={name: address - rbp for name, address in saved_registers(frame).items()})


def describe_variable(symbol, frame, depth, pending, pc):
    """`pc` is an address at which the variable is in scope."""
    entry = {"name": symbol.name, "line": symbol.line, "depth": depth, "pending": pending}
    entry.update(address=None, register=None)
    try:
        value = symbol.value(frame)
        if not value.is_optimized_out:
            entry["type"] = TYPES.number(value.type)
            if basic(value.type).code in REFERENCES:
                entry["address"] = locate_reference(symbol.name, frame, pc, int(value.address))
            elif value.address is not None:
                entry["address"] = int(value.address)
    except gdb.error:
        pass
    return entry


def locate_reference(name, frame, pc, target):
    """Where a reference lies itself: gdb tells only of what it refers to, `target`. None where that is not sure."""
    base = read_register(frame, "rbp")
    for found, first, second, behind in ON_FRAME.findall(list_scope(pc)):
        if found == name:
            # Without a register it is counted from where the caller's stack ends: behind the saved frame pointer and
            # the return address.
            address = base + int(first) + int(second) if first else base + 2 * 8 + int(behind)
            kept = gdb.selected_inferior().read_memory(address, 8)
            return address if int.from_bytes(bytes(kept), "little") == target else None
    return None


def describe_live_variable(symbol, frame, depth, pending):
    """Of one in a register also where a function called since then has saved it."""
    entry = describe_variable(symbol, frame, depth, pending, frame.pc() - (frame != gdb.newest_frame()))
    if entry["address"] is None and "type" in entry:
        newest = gdb.newest_frame()
        register = registers_at(frame.pc() - (frame != newest)).get(symbol.name)
        inner = newest
        while register is not None and inner != frame:
            entry["address"] = saved_registers(inner).get(register, entry["address"])
            inner = inner.older()
        entry["register"] = register if entry["address"] is None else None
    return entry


def registers_at(address):
    """The variables that live in registers, by name; gdb tells the place of a variable only as text."""
    found = {}
    for name, register in IN_REGISTER.findall(list_scope(address)):
        found.setdefault(name, register)
    return found


def list_scope(address):
    try:
        return gdb.execute(f"info scope *{address:#x}", to_string=True)
    except gdb.error:
        return ""


IN_REGISTER = re.compile(r"^Symbol (\S+) is a variable in \$(\w+)", re.MULTILINE)
ON_FRAME = re.compile(
    r"^Symbol (\S+) is (?:a variable at frame base reg \$rbp offset (-?\d+)\+(-?\d+)"
    r"|a (?:variable with )?complex DWARF expression:\s+0: DW_OP_fbreg (-?\d+)\s*,)",
    re.MULTILINE,
)
SAVED_REGISTER = re.compile(r"(\w+) at (0x[0-9a-f]+)")


def saved_registers(frame):
    """Where a function keeps what it will restore for its caller."""
    frame.select()
    _, _, listing = gdb.execute("info frame", to_string=True).partition("Saved registers:")
    return {name: int(address, 16) for name, address in SAVED_REGISTER.findall(listing)}


def describe_return(frame):
    """At the end of a function what it returns is in a register, and nowhere else."""
    if frame != gdb.newest_frame() or frame.function() is None:
        return []
    end = holding_function(scopes(frame.block())).end
    kind = return_type(frame.function())
    if kind is None or gdb.find_pc_line(end - 1).pc != frame.pc():
        return []
    entry = {"name": "return value", "line": 0, "depth": 0, "pending": False, "address": None, "register": "rax"}
    return [dict(entry, type=kind)]


def return_type(function):
    """None for what is not returned in that register."""
    kind = basic(function.type.target())
    is_held = kind.code in SCALARS or kind.code in POINTERS
    if not is_held or kind.code in (gdb.TYPE_CODE_VOID, gdb.TYPE_CODE_FLT, gdb.TYPE_CODE_FUNC) or kind.sizeof > 8:
        return None
    return TYPES.number(function.type.target())
