#!/usr/bin/env python3
"""words.py - measures the language of the tree; exit 1 when a figure is worse than the one recorded.

Names, comments and docs use the terms of the field; at most twenty of our own stand in docs/glossary.md. The recorded
figures are a ratchet as in tests/structure.py: whoever makes one better lowers it in FIGURES, and nobody may exceed it.

  words.py               every figure, with what is recorded and wanted
  words.py --list        the same, and what each count consists of
  words.py --quick       without asking clang-format
  words.py DIR           the figures of another tree; nothing is enforced
"""
import os
import pathlib
import re
import subprocess
import sys
from collections import Counter, defaultdict

ROOT = pathlib.Path(__file__).resolve().parent.parent

# name -> (what it counts, recorded, goal)
FIGURES = {
    "names": ("identifiers with a term that the field has another word for", 0, 0),
    "files": ("files and folders named by such a term", 0, 0),
    "prose": ("lines of comments and docs with such a term", 0, 0),
    "glossary": ("terms of our own beyond twenty", 0, 0),
    "citations": ("citations that lead nowhere", 0, 0),
    "stems": ("pairs of one stem in a folder", 0, 0),
    "statics": ("static names defined in three or more files", 0, 0),
    "columns": ("files with a line beyond the formatter's limit", 0, 0),
    "format": ("files that clang-format 14 would change", 0, 0),
}

# Term -> where it stands for something that has a name in the field. Elsewhere it is plain English.
TERMS = {
    "fill filler fillers splice spliced": "server/cache server/request server/admin tests/unit/server/cache",
    "want promise": "server/cache server/repo server/request server/plan server/hub",
    "demand kin suits": "server/cache",
    "tail": "server/cache/variant server/cache/kin server/cache/entry server/cache/trim server/cache/hit",
    "corridor sheaf sheaves errand errands porter roster fate fates accord mailbox mailboxes scribe noes": "",
    "desk visit call entrance entrances opening hot resolve": "server/request server/own server/registry",
    "need fact facts gather": "server/repo server/plan",
    "seat seats haste": "server agent/pull",
    "lane lanes": "server agent",
    "offer offers brought joint joints intake intakes": "server/upload",
    "stock home homes holding": "server/hub server/own server/admin",
    "sift taking takings keeping": "server/sync",
    "asked greeting": "server/sync/rsync",
    "core edge": "server/sync/mirrord docs/protocols/sync.md",
    "shelf gift gifts guest guests": "agent tests/unit/agent",
    "neighbour neighbours": "agent/peers agent/pull docs/protocols/peers.md",
    "letter letters": "common/os server/cache server/net server/http server/request server/store",
    "late": "agent/lazy",
    "told": "server agent common",
    "learn hear": "agent/train kernels",
}
# Sentences may have these: they are verbs, too.
VERBS = set("want need call visit resolve asked hot late learn hear gather taking keeping holding brought opening tail promise suits home demand".split())
SOURCE = (".c", ".h", ".cu", ".cuh", ".def")
FORMATTED = (".c", ".h", ".cu")  # what `make format` hands to clang-format
COLUMNS = 100
KEPT = {"fillers", "shelf", "cache_fills_total", "cache_fills_open", "cache_fill_bytes_total"}  # settings and metrics: what users type
SELF = ("tests/words.py", "tests/system/test_words.py")  # their examples are what is not wanted
TOKEN = re.compile(r'(?P<comment>//[^\n]*|/\*.*?\*/)|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#[ \t]*include[^\n]*|(?P<name>[A-Za-z_]\w*)', re.S | re.M)
SHARED = 3  # so many files with a static function of one name: grep does not find the place any more
PROGRAMS = ("agent/", "common/", "kernels/", "server/")
USUAL = {"main", "usage"}
STATIC = re.compile(r"^static\b[^;{}=]*\{", re.M)
ATTRIBUTE = re.compile(r"\b(?:__launch_bounds__|__attribute__)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
DEFINED = re.compile(r"\bFN\((\w+)\)\s*\(|\b(\w+)\s*\(")  # FN(): a template of the CPU kernels, one function a type
IRREGULAR = {"kept": "keep", "told": "tell", "held": "hold", "brought": "bring", "took": "take", "taken": "take", "sent": "send", "said": "say", "seen": "see"}
CITED = re.compile(r"(?P<outside>\bresearch/[\w-]+|\b(?:DESIGN|STYLE)(?:\.md| \d+(?:\.\d+)*|'s\b))|\b(?P<doc>docs/[\w/.-]*\w)|\b(?P<decision>[Dd]ecisions?[ /](?P<number>\d{4}))")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)(?P<link>[^)#\s]+)")


def tracked(root):
    if (root / ".git").exists():
        out = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True).stdout
        names = [n for n in out.split("\0") if n and (root / n).is_file()]
    else:
        names = [str(f.relative_to(root)) for f in root.rglob("*") if f.is_file() and not str(f.relative_to(root)).startswith("build")]
    return sorted(set(names))


def ours(root):
    """The glossary's terms."""
    page = root / "docs" / "glossary.md"
    return [m for m in re.findall(r"^\| (\w[\w ]*?) \|", page.read_text(), re.M) if m != "term"] if page.exists() else []


def terms_of(name, known):
    return {t for words, where in TERMS.items() for t in words.split() if t not in known
            and (where == "" or any(name.startswith(w) for w in where.split()))}


def stem(word):
    word = IRREGULAR.get(word, word)
    for end in "ings", "ing", "ers", "er", "ed", "es", "s", "e":
        if word.endswith(end) and len(word) - len(end) >= 3:
            word = word[:-len(end)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


def pairs(names):
    """Files of one folder whose names are inflections of one word; lock.h and the table locks.def are not."""
    folders = defaultdict(set)
    for name in names:
        if name.endswith(SOURCE) and not name.endswith(".def"):
            folder, _, file = name.rpartition("/")
            folders[folder].add(file.rpartition(".")[0])
            above, _, last = folder.rpartition("/")
            folders[above].add(last)
    for folder, files in sorted(folders.items()):
        same = defaultdict(list)
        for file in sorted(files):
            same[stem(file)].append(file)
        for group in same.values():
            for other in group[1:]:
                yield f"{folder}: {group[0]}, {other}"


def statics(text):
    """The static functions that a file defines."""
    bare = re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    found = (DEFINED.search(ATTRIBUTE.sub("", m[0])) for m in STATIC.finditer(bare))
    return {m[1] or m[2] for m in found if m} - USUAL


def dangling(root, name, text, decisions):
    for m in CITED.finditer(text):
        if m["outside"]:
            lost = True
        elif m["decision"]:
            lost = m["number"] not in decisions
        else:
            path = m["doc"]
            lost = not (root / path).exists() and not re.match(r"docs/decisions/\d{4}$", path)
        if lost:
            yield f"{name}:{text.count(chr(10), 0, m.start()) + 1}: {m[0]}"
    if name.endswith(".md"):
        for m in LINK.finditer(text):
            if not (root / name).parent.joinpath(m["link"]).exists():
                yield f"{name}:{text.count(chr(10), 0, m.start()) + 1}: {m['link']}"


def unformatted(root, names):
    """None: there is no clang-format here to ask."""
    try:
        run = subprocess.run(["xargs", "-P", str(min(4, os.cpu_count() or 1)), "-n", "16", "clang-format-14", "--dry-run"],
                             input="\n".join(names), cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    if run.returncode == 127:
        return None
    return sorted({line.split(":")[0] for line in run.stderr.splitlines() if "clang-format-violations" in line})


def measure(root, quick):
    """name -> what the figure counts, or None where it cannot be measured"""
    names = tracked(root)
    known = ours(root)
    identifiers, prose, files, lost, wide = Counter(), [], [], [], []
    defined = defaultdict(list)
    decisions = {n.split("/")[-1][:4] for n in names if n.startswith("docs/decisions/")}
    for name in names:
        code = name.endswith(SOURCE)
        document = name.endswith(".md") and not name.startswith("docs/decisions/") and name not in ("CHANGES.md", "docs/glossary.md")
        if not code and not name.endswith((".md", ".py", ".mk", ".cc", "Makefile")) or name in SELF:
            continue
        text = (root / name).read_text(errors="replace")
        lost += dangling(root, name, text, decisions)
        terms = terms_of(name, known)
        nouns = sorted(terms - VERBS)
        word = re.compile(r"(?<![\w/.-])(?:" + "|".join(nouns) + r")(?![\w/.-]\w)(?!\w)", re.I) if nouns else None
        if code:
            if name.endswith(FORMATTED) and any(len(line) > COLUMNS for line in text.splitlines()):
                wide.append(name)
            if name.endswith((".c", ".cu")) and name.startswith(PROGRAMS):
                for function in statics(text):
                    defined[function].append(name)
            last = name.rpartition("/")[2].rpartition(".")[0]
            if terms & set(last.split("_")):
                files.append(name)
            for m in TOKEN.finditer(text):
                if m["name"]:
                    if m["name"] not in KEPT and terms & set(m["name"].lower().split("_")):
                        identifiers[m["name"]] += 1
                elif m["comment"] and word:
                    at = text.count("\n", 0, m.start()) + 1
                    prose += [f"{name}:{at + i}: {line.strip()}" for i, line in enumerate(m["comment"].split("\n")) if word.search(line)]
        elif document and word:
            prose += [f"{name}:{i}: {line.strip()}" for i, line in enumerate(text.split("\n"), 1) if word.search(line)]
    return {"names": [f"{n} {c}" for n, c in sorted(identifiers.items())], "files": files, "prose": prose, "glossary": known[20:],
            "citations": lost, "stems": list(pairs(names)), "columns": wide,
            "statics": [f"{n}: {', '.join(at)}" for n, at in sorted(defined.items()) if len(at) >= SHARED],
            "format": None if quick else unformatted(root, [n for n in names if n.endswith(FORMATTED)])}


def main():
    words = sys.argv[1:]
    listed, quick = "--list" in words, "--quick" in words
    elsewhere = [w for w in words if not w.startswith("-")]
    worse = 0
    for name, found in measure(pathlib.Path(elsewhere[0]) if elsewhere else ROOT, quick).items():
        what, recorded, goal = FIGURES[name]
        if found is None:
            print(f"      - {what:62} not measured here")
            continue
        note = f"at most {recorded}, goal {goal}"
        if not elsewhere and len(found) > recorded:
            note, worse = f"WORSE than the {recorded} that is recorded (goal {goal}); --list names them", worse + 1
        elif not elsewhere and len(found) < recorded:
            note += "; better: record it in tests/words.py"
        print(f"{len(found):7} {what:62} {note}".rstrip())
        for line in found if listed else ():
            print(f"          {line}")
    print(f"words: {worse} figures worse than recorded")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
