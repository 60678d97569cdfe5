#!/usr/bin/env python3
"""structure.py - measures how the sources are cut; exit 1 when a figure is worse than the one recorded.

Each figure has a goal and a recorded value. The recorded value is a ratchet: whoever makes a figure better
lowers it in FIGURES, and nobody may exceed it. docs/architecture.md carries the table (--table prints it).

  structure.py            every figure, with what is recorded and wanted
  structure.py --list     the same, and the names that each count consists of
  structure.py --table    the table of docs/architecture.md
  structure.py DIR        the figures of another tree; nothing is enforced

A function is exported when a .c file defines it without `static`. A file uses it when its name occurs there
outside of comments and strings. Bools are counted by name, so `bool a, b;` is two. A file sees a struct when an
include leads to the header that defines it, however long the way.
"""
import pathlib
import re
import sys
from collections import defaultdict
from functools import cache

ROOT = pathlib.Path(__file__).resolve().parent.parent

# name -> (what it counts, recorded, goal); None: not enforced
FIGURES = {
    "one_user_server": ("server: exported functions that one other file uses, %", 52, 50),
    "one_user_agent": ("agent: exported functions that one other file uses, %", 50, 50),
    "bools": ("structs with 8 bools or more", 0, 2),
    "tags": ("struct tags that two headers define", 0, 0),
    "fetch": ("server: files that touch the fields of `struct fetch`", 4, 4),
    "daemon": ("server: .c files that see `struct daemon`", 3, 3),
    "protocols_serve": ("files of server/request that name a protocol", 0, 0),
    "protocols_store": ("files of server/store that name a protocol", 0, 0),
    "rings_server": ("server: folders in a ring of includes", 0, 0),
    "rings_agent": ("agent: folders in a ring of includes", 0, 0),
    "median": ("lines of a function: median", 9, 9),
    "p90": ("lines of a function: 90 % have at most", 23, 23),
    "p99": ("lines of a function: 99 % have at most", 40, 40),
    "file_server": ("server: lines of a .c file, average", None, None),
    "file_agent": ("agent: lines of a .c file, average", None, None),
    "lines_server": ("server: lines of all its files", None, None),
}

NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
STRUCT = re.compile(r"\bstruct\s+(\w+)\s*\{")
PROTOCOL = re.compile(r"(?<![a-z])(hf|hub|pypi|python|conda|oci|registry|xet|xorb|xshard|lfs|debian|rpm)s?(?![a-z])", re.I)


def without(text, strings):
    """Blanks out comments, and strings where asked to; the lines stay."""
    def blank(m):
        s = m.group()
        if s[0] in "\"'":
            return s[0] + s[0] if strings else s
        return "\n" * s.count("\n") or " "
    return NOT_CODE.sub(blank, text)


def without_directives(code):
    out, goes_on = [], False
    for line in code.split("\n"):
        directive = goes_on or line.lstrip().startswith("#")
        goes_on = directive and line.endswith("\\")
        out.append("" if directive else line)
    return "\n".join(out)


def functions(code):
    """(name, is it static, lines of its body) of each function that is defined."""
    depth = start = 0
    for m in re.finditer(r"[{};]", code):
        if m.group() == "{":
            if depth == 0:
                head, opened = code[start:m.start()].strip(), m.start()
            depth += 1
        elif m.group() == "}":
            depth -= 1
            if depth == 0:
                head = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", head)
                before = head.split("(")[0]
                if head.endswith(")") and "=" not in before:
                    yield re.search(r"(\w+)\s*\(", head)[1], "static" in before.split(), code.count("\n", opened, m.start()) - 1
                start = m.end()
        elif depth == 0:
            start = m.end()


def structs(code):
    """(tag, body) of each struct that is defined."""
    for m in STRUCT.finditer(code):
        depth, end = 1, m.end()
        while depth and end < len(code):
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
        yield m[1], code[m.end():end - 1]


def bools(body):
    return sum(len(d.split(",")) for d in body.split(";") if re.match(r"\s*(_Atomic\s+)?bool\b", d) and "(" not in d)


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = sorted(str(f.relative_to(self.root)) for top in ("common", "kernels", "server", "agent")
                            for f in (self.root / top).rglob("*") if f.suffix in (".c", ".h", ".cu", ".def"))
        self.text = {f: (self.root / f).read_text(errors="replace") for f in self.files}
        self.code = {f: without_directives(without(t, True)) for f, t in self.text.items()}
        self.words = {f: set(re.findall(r"\w+", without(t, True))) for f, t in self.text.items()}
        self.includes = {f: INCLUDE.findall(t) for f, t in self.text.items()}
        self.functions = {f: list(functions(self.code[f])) for f in self.files if f.endswith(".c")}
        self.structs = {f: list(structs(self.code[f])) for f in self.files}

    def under(self, folder, *but):
        return [f for f in self.files if f.startswith(folder + "/") and not f.startswith(but)]

    @cache
    def seen_from(self, name):
        seen, todo = set(), [name]
        while todo:
            for target in self.includes.get(todo.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    def one_user(self, files):
        """(functions that one other .c file uses, all that are exported)"""
        sources = [f for f in files if f.endswith(".c")]
        exported = [(f, name) for f in sources for name, static, _ in self.functions[f] if not static]
        users = defaultdict(list)
        for f in sources:
            for word in self.words[f]:
                users[word].append(f)
        return [f"{f}: {name}" for f, name in exported if len([u for u in users[name] if u != f]) == 1], exported

    def touch(self, tag, folder):
        """Files that look into a struct: they see its definition and follow a pointer to it."""
        at = self.definers(tag, folder)
        named = re.compile(rf"\bstruct {tag} \*(?:const )?(\w+)")
        members = {m for f in self.under(folder) for _, body in self.structs[f] for m in named.findall(body)}
        chained = "|".join(sorted(members)) or "$"
        found = sorted(at)
        for f in self.under(folder):
            own = "|".join(sorted(set(named.findall(self.code[f])))) or "$"
            if f not in at and at & self.seen_from(f) and re.search(
                    rf"(?<![\w>.])(?:{own})->|(?:->|\.)(?:{chained})->", self.code[f]):
                found.append(f)
        return found

    def definers(self, tag, folder):
        """Its headers; files of their own that define another struct of that name are left out."""
        at = {f for f in self.under(folder) if any(t == tag for t, _ in self.structs[f])}
        return {f for f in at if f.endswith(".h")} or at

    def sees(self, tag, folder):
        at = self.definers(tag, folder)
        return [f for f in self.under(folder) if f.endswith(".c") and (f in at or at & self.seen_from(f))]

    def ring_folders(self, top):
        graph = defaultdict(set)
        for f in self.under(top):
            for target in self.includes[f]:
                mine, theirs = f.rpartition("/")[0], target.rpartition("/")[0]
                if theirs.startswith(top) and theirs != mine:
                    graph[mine].add(theirs)

        def reach(a):
            seen, todo = set(), [a]
            while todo:
                for b in graph.get(todo.pop(), ()):
                    if b not in seen:
                        seen.add(b)
                        todo.append(b)
            return seen
        return [a for a in sorted(graph) if a in reach(a)]


def measure(tree):
    """name -> (figure, the names that it consists of)"""
    out = {}
    for who, files in ("server", tree.under("server")), ("agent", tree.under("agent", "agent/train/")):
        one, exported = tree.one_user(files)
        out[f"one_user_{who}"] = round(100 * len(one) / max(1, len(exported))), one
        sources = [f for f in files if f.endswith(".c")]
        out[f"file_{who}"] = round(sum(tree.text[f].count("\n") for f in sources) / max(1, len(sources))), []
        out[f"rings_{who}"] = counted(tree.ring_folders(who))
    out["bools"] = counted(f"{f}: {tag} ({bools(body)})" for f in tree.files for tag, body in tree.structs[f] if bools(body) >= 8)
    headers = defaultdict(set)
    for f in tree.files:
        for tag, _ in tree.structs[f] if f.endswith(".h") else ():
            headers[tag].add(f)
    out["tags"] = counted(f"{tag}: {' '.join(sorted(at))}" for tag, at in sorted(headers.items()) if len(at) > 1)
    out["fetch"] = counted(tree.touch("fetch", "server"))
    out["daemon"] = counted(tree.sees("daemon", "server"))
    for part in "serve", "store":
        out[f"protocols_{part}"] = counted(f for f in tree.under(f"server/{part}") if PROTOCOL.search(without(tree.text[f], False)))
    lengths = sorted(n for fs in tree.functions.values() for _, _, n in fs)
    for name, share in ("median", 0.5), ("p90", 0.9), ("p99", 0.99):
        out[name] = lengths[int(len(lengths) * share)] if lengths else 0, []
    out["lines_server"] = sum(tree.text[f].count("\n") for f in tree.under("server")), []
    return out


def counted(names):
    names = list(names)
    return len(names), names


def table():
    rows = [f"| {what} | {recorded} | {goal} |" for what, recorded, goal in FIGURES.values() if goal is not None]
    return "\n".join(["| figure | at most | goal |", "|---|---|---|", *rows])


def main():
    words = sys.argv[1:]
    if words == ["--table"]:
        print(table())
        return 0
    listed = words == ["--list"]
    elsewhere = not listed and words != []
    figures, worse = measure(Tree(words[0] if elsewhere else ROOT)), 0
    for name, (what, recorded, goal) in FIGURES.items():
        now, names = figures[name]
        note = "" if recorded is None else f"at most {recorded}, goal {goal}"
        if recorded is not None and not elsewhere and now > recorded:
            note, worse = f"WORSE than the {recorded} that is recorded (goal {goal}); --list names them", worse + 1
        elif recorded is not None and not elsewhere and now < recorded:
            note += "; better: record it in tests/structure.py"
        print(f"{now:7} {what:58} {note}".rstrip())
        for line in names if listed else ():
            print(f"          {line}")
    print(f"structure: {worse} figures worse than recorded")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
