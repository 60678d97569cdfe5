"""Filter rules beside the installed rsync: the same random rules over the same tree leave the same."""
import os
import random
import subprocess

from harness.mirrord import BUILD

NAMES = ["a", "b", "ab", "x.iso", "a.b", "B7", "a[b", "a\\b", "*", "pool", "main", "-x", "_", "a b"]
PARTS = ["a", "b", "*", "**", "?", "[a-b]", "[!a]", "[[:digit:]]", "[[:upper:]b]", "\\*", "\\b", "a\\b", "x.iso", "*.iso", ".", "pool", "main",
         "[]", "[^b]*", "\\[", "***", "_", " "]
TREES, RULES = 4, int(os.environ.get("FILTER_RULES", "60"))


def grow(root, r, depth=0):
    for name in r.sample(NAMES, r.randint(3, len(NAMES))):
        at = root / name
        if depth < 3 and r.random() < 0.4:
            at.mkdir()
            grow(at, r, depth + 1)
        else:
            at.write_bytes(b"")


def paths(root):
    out = []
    for folder, folders, files in os.walk(root):
        folders.sort()
        rel = os.path.relpath(folder, root)
        out += [os.path.normpath(os.path.join(rel, n)) + "/" for n in folders]
        out += [os.path.normpath(os.path.join(rel, n)) for n in files]
    return out


def pattern(r):
    parts = ["".join(r.choice(PARTS) for _ in range(r.randint(1, 2))) for _ in range(r.randint(1, 3))]
    return r.choice(["", "", "/", "**/"]) + "/".join(parts) + r.choice(["", "", "/", "/**", "/***"])


def rule(r):
    head = r.choice(["- ", "- ", "+ ", "-! ", "+! ", "exclude ", "include ", "hide ", "-_"])
    text = head + pattern(r)
    return text if r.random() > 0.03 else "!"


def compare(rsync, root, every, rules):
    """What both leave of the tree."""
    theirs = subprocess.run([rsync, "-rn8", "--no-motd", "--out-format=%n", *(f"--filter={x}" for x in rules), f"{root}/", f"{root}.none/"],
                            capture_output=True, text=True)
    assert theirs.returncode == 0, (rules, theirs.stderr)
    ours = subprocess.run([BUILD / "harness/filter_takes", *rules], input="".join(p + "\n" for p in every), capture_output=True, text=True)
    assert ours.returncode == 0, (rules, ours.stderr)
    want = {p.rstrip("/").removeprefix("./") for p in theirs.stdout.replace("\\#134", "\\").splitlines()} - {".", "", "created directory"}
    assert set(ours.stdout.splitlines()) == want, (root, rules)


SETS = ["[b]/g", "[b]/", "/[b]/g", "a/[b]/g", "[b]/*", "**/[b]/g", "[b]/**", "[b/]g", "[b]/g/", "\\[b]/g", "[b/g", "[[b]/g", "[!a]/g", "[b]/[g]",
        "[b]/g/***", "[]b]/g", "[b-]/g"]


def test_sets_before_a_slash(client, tmp_path):
    root = tmp_path / "tree"
    for path in ("b/g", "a/b/g", "a/b/h", "b/x", "xb/g", "[b]/g", "a/[b]/g", "b/c/g", "b/h/f", "g", "a/g/b/g", "b/i/g"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"")
    for pattern in SETS:
        for rules in ([f"- {pattern}"], [f"+ {pattern}", "+ */", "- *"]):
            compare(client("rsync"), root, paths(root), rules)


def test_the_same_as_rsync(client, tmp_path):
    rsync = client("rsync")
    for seed in range(TREES):
        r = random.Random(seed)
        root = tmp_path / str(seed)
        root.mkdir()
        grow(root, r)
        every = paths(root)
        for _ in range(RULES):
            compare(rsync, root, every, [rule(r) for _ in range(r.randint(1, 4))])
