"""Who may include whom (tests/layers.py) and how the sources are cut (tests/structure.py): the house keeps to it, and what does not would be seen."""
import subprocess
import sys

import pytest

from harness.mirrord import ROOT

GOOD = {
    "common/base/a.h": "#ifndef COMMON_BASE_A_H\n#define COMMON_BASE_A_H\n#endif\n",
    "common/base/a.c": '#include "common/base/a.h"\n\n#include <stdio.h>\n',
    "server/net/b.h": '#ifndef SERVER_NET_B_H\n#define SERVER_NET_B_H\n#include "common/base/a.h"\n#endif\n',
}


def script(name, *words):
    done = subprocess.run([sys.executable, ROOT / "tests" / name, *words], capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout


def walk(*root):
    return script("layers.py", *root)


def guarded(path, text):
    guard = path.upper().replace("/", "_").replace(".", "_")
    return f"#ifndef {guard}\n#define {guard}\n{text}#endif\n"


def test_the_house():
    code, said = walk()
    assert code == 0, said


@pytest.mark.parametrize("name, text, said", [
    ("server/net/x.c", '#include "server/cache/cache.h"\n', "server/net/x.c: server/net may not include server/cache/cache.h"),
    ("server/gate/x.c", '#include "server/http/body.h"\n', "server/gate may not include server/http/body.h"),
    ("server/repo/pypi/x.c", '#include "server/repo/conda/x.h"\n', "server/repo/pypi may not include server/repo/conda/x.h"),
    ("server/ctl/x.c", '#include "server/store/store.h"\n', "server/ctl may not include server/store/store.h"),
    ("common/base/x.c", '#include "a.h"\n', "common/base/x.c: includes are written from the root, not a.h"),
    ("common/base/a.c", '#include <stdio.h>\n#include "common/base/b.h"\n#include "common/base/a.h"\n', "includes its own header first"),
    ("common/base/x.h", "#ifndef X_H\n#define X_H\n#endif\n", "its guard is COMMON_BASE_X_H"),
    ("common/base/a.h", '#ifndef COMMON_BASE_A_H\n#define COMMON_BASE_A_H\n#include "common/base/b.h"\n#endif\n',
     "headers form a ring: common/base/a.h -> common/base/b.h -> common/base/a.h"),
    ("server/store/x.c", '#include "server/gate/x.h"\n', "server/store may not include server/gate/x.h"),
    ("server/request/x.c", '#include "server/daemon.h"\n', "server/request may not include server/daemon.h"),
    ("server/hub/x.c", '#include "server/admin/deps.h"\n', "server/hub may not include server/admin/deps.h"),
    ("agent/peers/x.c", '#include "agent/pull/pull.h"\n', "agent/peers may not include agent/pull/pull.h"),
    ("agent/pull/x.c", '#include "agent/peers/peers.h"\n', "agent/pull may not include agent/peers/peers.h"),
    ("agent/x.c", '#include "agent/verbs/x.h"\n', "agent may not include agent/verbs/x.h"),
    ("agent/cache/y.c", '#include "agent/cache/y.h"\n#include "agent/cache/x.h"\n', "files form a ring: agent/cache/x -> agent/cache/y -> agent/cache/x"),
])
def test_what_it_sees(tmp_path, name, text, said):
    tree = {**GOOD, "agent/cache/x.h": guarded("agent/cache/x.h", '#include "agent/cache/y.h"\n'), "agent/cache/y.h": guarded("agent/cache/y.h", ""),
            "common/base/b.h": '#ifndef COMMON_BASE_B_H\n#define COMMON_BASE_B_H\n#include "common/base/a.h"\n#endif\n'}
    for at, words in {**tree, name: text}.items():
        (tmp_path / at).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / at).write_text(words)
    code, words = walk(tmp_path)
    assert code == 1 and said in words, words


# --- figures of the sources ---

CUT = {
    "agent/a/a.h": "struct agent_a { bool b, c, d, e; bool f; bool g; bool h, i; };\nint a_used(void);\n",
    "agent/a/a.c": '#include "agent/a/a.h"\n#include "agent/b/b.h"\n\nint a_used(void)\n{\n    /* b_unused */\n    return b_used("}");\n}\n',
    "agent/b/b.h": '#include "agent/a/a.h"\nstruct agent_a { int x; };\n',
    "agent/b/b.c": "int b_used(void)\n{\n    return 0;\n}\n\nint b_unused(void)\n{\n    return 0;\n}\n\nstatic int own(void)\n{\n    return 0;\n}\n",
    "server/store/x.c": "/* no xorb */\nint put_xorb(void);\n",
    "server/store/y.c": "/* no xorb */\nint box;\n",
    "server/cache/fetch.h": "struct fetch {\n    int n;\n};\n",
    "server/cache/look.c": '#include "server/cache/fetch.h"\n\nint look(struct fetch *f)\n{\n    return f->n;\n}\n',
    "server/cache/hold.c": '#include "server/cache/fetch.h"\n\nvoid hold(struct fetch *f)\n{\n    pass(f);\n}\n',
    "server/daemon.h": "struct daemon {\n    int n;\n};\n",
    "server/far.h": '#include "server/daemon.h"\n',
    "server/far.c": '#include "server/far.h"\n',
}


def test_figures_of_a_small_tree(tmp_path):
    for at, words in CUT.items():
        (tmp_path / at).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / at).write_text(words)
    code, said = script("structure.py", tmp_path)
    figures = {line[8:67].strip(): int(line[:7]) for line in said.splitlines() if line[:7].strip().isdigit()}
    assert code == 0
    assert figures["agent: exported functions that one other file uses, %"] == 33  # b_used of three
    assert figures["structs with 8 bools or more"] == 1
    assert figures["struct tags that two headers define"] == 1
    assert figures["server: files that touch the fields of `struct fetch`"] == 2  # its header and look.c
    assert figures["server: .c files that see `struct daemon`"] == 1
    assert figures["files of server/store that name a protocol"] == 1
    assert figures["agent: folders in a ring of includes"] == 2
    assert figures["server: folders in a ring of includes"] == 0
    assert figures["lines of a function: median"] == 1


def test_no_figure_is_worse_than_recorded():
    code, said = script("structure.py")
    assert code == 0, said


def test_the_page_has_the_figures_and_the_arrows():
    page = (ROOT / "docs/architecture.md").read_text()
    assert script("structure.py", "--table")[1] in page
    assert script("layers.py", "--table")[1] in page
