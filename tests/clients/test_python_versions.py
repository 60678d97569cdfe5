"""Versions, specifiers and markers as pip's own library reads them: random ones, and odd ones."""
import json
import random
import subprocess

import pytest

from harness.mirrord import BUILD

PEER = """
import json, sys
from packaging.markers import InvalidMarker, Marker
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
env = dict(python_version="3.11", python_full_version="3.11.0", os_name="posix", sys_platform="linux", platform_system="Linux",
           platform_machine="x86_64", implementation_name="cpython", platform_python_implementation="CPython",
           implementation_version="3.11.0", extra="")
def one(kind, a, b):
    try:
        if kind == "v":
            return str(Version(a))
        if kind == "c":
            return str((Version(a) > Version(b)) - (Version(a) < Version(b)))
        if kind == "s":
            return str(int(SpecifierSet(a).contains(Version(b), prereleases=True)))
        return str(int(Marker(a).evaluate(env)))
    except (InvalidVersion, InvalidSpecifier, InvalidMarker):
        return "error"
    except Exception:
        if kind != "m":
            raise
        return None  # texts and versions compared: pip gives up there
print(json.dumps([one(*(line + ["", ""])[:3]) for line in json.load(sys.stdin)]))
"""


def version(r, local=True):
    out = r.choice(["", "", "", "1!"]) + ".".join(str(r.randrange(3)) for _ in range(r.randrange(1, 4)))
    out += r.choice(["", "", "", "a1", ".b2", "rc1", "-c3", "_alpha", "pre2", "b"])
    out += r.choice(["", "", "", ".post1", "-1", "rev2", ".r3", "post"])
    out += r.choice(["", "", "", ".dev1", "dev", "-dev2"])
    return out + (r.choice(["", "", "", "+a.1", "+1", "+1.0", "+ubuntu-1"]) if local else "")


def specifier(r):
    op = r.choice(["==", "!=", "<=", ">=", "<", ">", "~="])
    v = version(r, op in ("==", "!="))
    star = r.choice(["", "", ".*"]) if op in ("==", "!=") else ""
    return op + r.choice(["", " "]) + v + star


def marker(r):
    if r.random() < 0.5:
        left, right = r.choice(["python_version", "python_full_version"]), r.choice(["'3.11'", "'3.2'", "'3.11.1'", "'3.9'", "'3.12'"])
        op = r.choice(["==", "!=", "<", "<=", ">=", ">", "~="])
    else:
        left = r.choice(["os_name", "sys_platform", "platform_machine", "'posix'", "'linux'"])
        right, op = r.choice(["'posix'", "'linux'", "'x86_64 arm64'", "'nt posix'"]), r.choice(["==", "!=", "in", "not in"])
    out = f"{left} {op} {right}"
    if r.random() < 0.4:
        out = f"({out}) {r.choice(['and', 'or'])} {marker(r)}"
    return out


def test_as_packaging_has_it(python):
    if subprocess.run([python, "-c", "import packaging"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no packaging in .venv")
    r = random.Random(5)
    asks = [["v", version(r)] for _ in range(2000)] + [["c", version(r), version(r)] for _ in range(5000)]
    asks += [["s", ",".join(specifier(r) for _ in range(r.randrange(1, 3))), version(r)] for _ in range(8000)]
    asks += [["m", marker(r)] for _ in range(2000)]
    asks += [["v", v] for v in ("1.0a.dev1", "1.", "v1", "1.0--1", "1.0a-1", "1.0 ", "1.0.post", "1.0.", "0" * 30 + "1")]
    ours = subprocess.run([BUILD / "harness/python_versions"], input="".join("\t".join(a) + "\n" for a in asks), text=True,
                          capture_output=True, check=True).stdout.split("\n")[:-1]
    theirs = json.loads(subprocess.run([python, "-c", PEER], input=json.dumps(asks), text=True, capture_output=True, check=True).stdout)
    wrong = [(a, o, t) for a, o, t in zip(asks, ours, theirs) if t is not None and o != t]
    assert len(ours) == len(asks) and not wrong, (len(wrong), wrong[:20])
