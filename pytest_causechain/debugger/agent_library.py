# mypy: ignore-errors
"""What the types of libstdc++'s containers mean, read from their members' names. A part of the agent.

A library that names its members otherwise is not recognised: its containers stay the plain structs that they are."""

import re

import gdb

RECORD_CODES = (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION)
LIBRARY = ("std::", "__gnu_cxx::")
# Containers whose pointers know only the base of their nodes: that base, and how the nodes' own type begins.
NODES = {
    "std::_Rb_tree<": ("std::_Rb_tree_node_base", "std::_Rb_tree_node<"),
    "std::__cxx11::_List_base<": ("std::__detail::_List_node_base", "std::_List_node<"),
    "std::_Hashtable<": ("std::__detail::_Hash_node_base", "std::__detail::_Hash_node<"),
    "std::_Fwd_list_base<": ("std::_Fwd_list_node_base", "std::_Fwd_list_node<"),
}
# The same is true of what leads to their elements.
ITERATORS = {
    "std::_Rb_tree_iterator<": "std::_Rb_tree<",
    "std::_Rb_tree_const_iterator<": "std::_Rb_tree<",
    "std::_List_iterator<": "std::__cxx11::_List_base<",
    "std::_List_const_iterator<": "std::__cxx11::_List_base<",
    "std::_Fwd_list_iterator<": "std::_Fwd_list_base<",
}
# What such a container and its nodes are made of.
MADE_OF_NODES = re.compile(r"std::(__cxx11::|__detail::)?_(Rb_tree|List_|Hash|Fwd_list)")
# Bytes in which an object of another type lies.
BUFFERS = ("__gnu_cxx::__aligned_membuf<", "__gnu_cxx::__aligned_buffer<")
# How deep the members lie that tell what a container holds.
DEPTH = 9
# Members that a reader need not know of: the container's own name stands for them.
UNNAMED = {
    "_M_impl", "_M_t", "_M_h", "_M_dataplus", "_M_p", "_M_start", "_M_head_impl", "_M_ptr", "_M_refcount", "_M_pi",
    "_M_elems", "_M_storage", "_M_payload", "_M_head", "_M_node", "_M_header", "_M_str", "_M_obj", "_M_u", "_M_first",
    "_M_functor", "_M_unused", "_M_object",
}  # fmt: skip
COUNTS = {"_M_use_count": "use_count()", "_M_weak_count": "weak_count()"}
ADAPTORS = ("std::stack<", "std::queue<", "std::priority_queue<")
HEAD = re.compile(r"std::_Head_base<(\d+)")


def members_of(kind):
    return kind.fields() if kind.code in RECORD_CODES else []


def strip(kind):
    return kind.strip_typedefs().unqualified()


def tag_of(kind):
    return kind.tag or "" if kind.code in RECORD_CODES else ""


def held_type(kind):
    """The type of what lies in a buffer of the library, or in the union of an optional; None for other types."""
    tag = tag_of(kind)
    if tag.startswith(BUFFERS):
        try:
            held = strip(argument(kind, 0))
        except Unknown:
            return None
        return held if held.sizeof <= kind.sizeof else None
    if tag.startswith("std::_Optional_payload_base<") and "::_Storage<" in tag:
        return next((strip(f.type) for f in kind.fields() if f.name == "_M_value"), None)
    return None


def argument(kind, number):
    """A type that a template was given."""
    try:
        found = kind.template_argument(number)
    except (RuntimeError, gdb.error):
        raise Unknown from None
    if not isinstance(found, gdb.Type):  # a number
        raise Unknown
    return found


class Unknown(Exception):
    """The library is another one than we know."""


def find_nodes(kind):
    """Of a container whose pointers know only the base of its nodes: the name of that, and the nodes' type."""
    tag = tag_of(kind)
    for start, (base, node) in NODES.items():
        if tag.startswith(start):
            found = find_argument(kind, node, DEPTH)
            return (base, found) if found is not None else None
    for start, container in ITERATORS.items():
        if tag.startswith(start):
            base, node = NODES[container]
            try:
                return base, gdb.lookup_type(f"{node}{argument(kind, 0)}>")
            except (gdb.error, Unknown):
                return None
    return None


def find_argument(kind, start, depth):
    """The allocator is the only one to know the type that it allocates."""
    if not depth:
        return None
    try:
        first = strip(argument(kind, 0))
        if tag_of(first).startswith(start):
            return first
    except Unknown:
        pass
    for field in members_of(kind):
        found = find_argument(strip(field.type), start, depth - 1)
        if found is not None:
            return found
    return None


def is_made_of_nodes(kind):
    return MADE_OF_NODES.match(tag_of(kind)) is not None


def name_member(kind, field):
    """As a path has it: nothing for a base class and for what a container hides; `*` for what an optional holds,
    `<0>` for what a tuple does."""
    tag = tag_of(kind)
    if field.is_base_class:
        head = HEAD.match(field.name or "")
        is_owner = "std::default_delete<" in tag
        return f"<{head[1]}>" if head and not is_owner else ""
    if tag.startswith("std::_Optional_payload_base<") and field.name == "_M_payload":
        return "*"
    if "<lambda(" in tag:
        return (field.name or "").removeprefix("__")  # captured under its own name
    if tag.startswith("std::_Sp_counted_base<") and field.name in COUNTS:
        return COUNTS[field.name]
    if tag.startswith(LIBRARY) and (field.name in UNNAMED or (field.name == "c" and tag.startswith(ADAPTORS))):
        return ""
    return field.name or ""


def locate(kind, *names):
    """Offset and type of a member, wherever in a record of the library it lies: of the one named last, in that named
    before."""
    offset = 0
    for name in names:
        found = locate_one(strip(kind), name, DEPTH)
        if found is None:
            raise Unknown
        offset, kind = offset + found[0], strip(found[1])
    return offset, kind


def locate_one(kind, name, depth):
    for field in members_of(kind) if depth else ():
        position = getattr(field, "bitpos", None)
        if position is None:
            continue
        if field.name == name:
            return position // 8, field.type
        inner = strip(field.type)
        if tag_of(inner).startswith(LIBRARY) or field.name is None:
            found = locate_one(inner, name, depth - 1)
            if found is not None:
                return position // 8 + found[0], found[1]
    return None


def describe_container(kind, number):
    """What a row says of a container: its kind, and the offsets of the members that make it one; `number` is that of a
    type. None for all other types."""
    tag = tag_of(kind)
    for start, (name, describe) in CONTAINERS.items():
        if tag.startswith(start) and tag.endswith(">"):
            try:
                if name == "vector" and strip(argument(kind, 0)).code == gdb.TYPE_CODE_BOOL:
                    name, describe = "bits", describe_nothing
                places = {member: at(kind, *path.split()) for member, path in MEMBERS[name].items()}
                return {"kind": name, **places, **describe(kind, number)}
            except (Unknown, gdb.error, RuntimeError, TypeError):
                return None
    return None


def at(kind, *names):
    return locate(kind, *names)[0]


def describe_nothing(kind, number):
    return {}


def describe_element(kind, number):
    return {"element": number(argument(kind, 0))}


def describe_nodes(kind, inner, number):
    """Of a container made of nodes: what lies in them, and their type. `inner` begins the name of the base that has the
    container's pointers."""
    for field in all_fields(kind, DEPTH):
        nodes = find_nodes(strip(field.type)) if tag_of(strip(field.type)).startswith(inner) else None
        if nodes is not None:
            node = number(nodes[1], nodes)
            value, held = locate(nodes[1], "_M_storage")
            return {"node": node, "value": value, "element": number(held_type(held) or held)}, nodes[1]
    raise Unknown


def all_fields(kind, depth):
    for field in members_of(kind) if depth else ():
        yield field
        yield from all_fields(strip(field.type), depth - 1)


def is_map(kind):
    return tag_of(kind).partition("<")[0].endswith("map")


def describe_tree(kind, number):
    nodes, _ = describe_nodes(kind, "std::_Rb_tree<", number)
    base = locate(kind, "_M_header")[1]
    return {**nodes, **{link: at(base, f"_M_{link}") for link in ("parent", "left", "right")}, "is_map": is_map(kind)}


def describe_hash(kind, number):
    nodes, node = describe_nodes(kind, "std::_Hashtable<", number)
    return {**nodes, "next": at(node, "_M_nxt"), "is_map": is_map(kind)}


def describe_list(kind, number):
    nodes, node = describe_nodes(kind, "std::__cxx11::_List_base<", number)
    return {**nodes, "next": at(node, "_M_next"), "first": at(kind, "_M_next"), "count": at(kind, "_M_size")}


def describe_forward_list(kind, number):
    nodes, node = describe_nodes(kind, "std::_Fwd_list_base<", number)
    return {**nodes, "next": at(node, "_M_next"), "first": at(kind, "_M_head", "_M_next"), "count": None}


def describe_optional(kind, number):
    value, union = locate(kind, "_M_payload", "_M_payload")
    held = held_type(union)
    if held is None:
        raise Unknown
    return {"value": value, "element": number(held)}


def describe_variant(kind, number):
    alternatives = []
    try:
        while True:
            alternatives.append(number(argument(kind, len(alternatives))))
    except Unknown:
        pass
    return {"width": locate(kind, "_M_index")[1].sizeof, "elements": alternatives}


# By the kind of a container the names that lead to each of its members.
MEMBERS = {
    "string": {"pointer": "_M_p", "length": "_M_string_length", "local": "_M_local_buf"},
    "view": {"pointer": "_M_str", "length": "_M_len"},
    "vector": {"start": "_M_start", "finish": "_M_finish", "end": "_M_end_of_storage"},
    "bits": {"start": "_M_start _M_p", "finish": "_M_finish _M_p", "offset": "_M_finish _M_offset"},
    "deque": {
        "map": "_M_map",
        **{
            f"{end}_{part}": f"_M_{end} _M_{part}"
            for end in ("start", "finish")
            for part in ("cur", "first", "last", "node")
        },
    },
    "tree": {"header": "_M_header", "count": "_M_node_count"},
    "hash": {"first": "_M_before_begin _M_nxt", "count": "_M_element_count", "buckets": "_M_buckets"},
    "list": {},
    "optional": {"flag": "_M_engaged"},
    "variant": {"index": "_M_index", "value": "_M_u"},
    "shared": {"pointer": "_M_ptr", "count": "_M_pi"},
    "function": {"manager": "_M_manager", "functor": "_M_functor"},
}
# By how the name of a container begins: its kind, and what tells all else.
CONTAINERS = {
    "std::__cxx11::basic_string<": ("string", describe_element),
    "std::basic_string_view<": ("view", describe_element),
    "std::vector<": ("vector", describe_element),
    "std::deque<": ("deque", describe_element),
    **dict.fromkeys(("std::map<", "std::set<", "std::multimap<", "std::multiset<"), ("tree", describe_tree)),
    **{f"std::unordered_{name}<": ("hash", describe_hash) for name in ("map", "set", "multimap", "multiset")},
    "std::__cxx11::list<": ("list", describe_list),
    "std::forward_list<": ("list", describe_forward_list),
    "std::optional<": ("optional", describe_optional),
    "std::variant<": ("variant", describe_variant),
    **dict.fromkeys(("std::shared_ptr<", "std::weak_ptr<"), ("shared", describe_nothing)),
    "std::function<": ("function", describe_nothing),
}

# Names

STRING = re.compile(r"std::(?:__cxx11::)?basic_string<char, std::char_traits<char>, std::allocator<char> ?>")
VIEW = re.compile(r"std::basic_string_view<char, std::char_traits<char> ?>")
# What nobody writes: the library leaves it to itself.
DEFAULTS = re.compile(r", std::(allocator|less|hash|equal_to|default_delete|char_traits)<")


def shorten_name(name):
    """`std::map<std::string, int>`, without the arguments that nobody writes."""
    name = VIEW.sub("std::string_view", STRING.sub("std::string", name)).replace("std::__cxx11::", "std::")
    while (found := DEFAULTS.search(name)) is not None:
        end = closing(name, found.end())
        name = name[: found.start()] + name[end:]
    return re.sub(r" +>", ">", name)


def closing(name, start):
    """Behind the bracket that ends what begins before `start`."""
    depth = 1
    for index in range(start, len(name)):
        depth += (name[index] == "<") - (name[index] == ">" and name[index - 1] != "-")
        if not depth:
            return index + 1
    return len(name)
