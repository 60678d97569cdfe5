"""Who may include whom (tests/layers.py): the house keeps to it, and what does not would be seen."""
import subprocess
import sys

import pytest

from harness.mirrord import ROOT

GOOD = {
    "common/base/a.h": "#ifndef COMMON_BASE_A_H\n#define COMMON_BASE_A_H\n#endif\n",
    "common/base/a.c": '#include "common/base/a.h"\n\n#include <stdio.h>\n',
    "server/net/b.h": '#ifndef SERVER_NET_B_H\n#define SERVER_NET_B_H\n#include "common/base/a.h"\n#endif\n',
}


def walk(*root):
    done = subprocess.run([sys.executable, ROOT / "tests/layers.py", *root], capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout


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
])
def test_what_it_sees(tmp_path, name, text, said):
    tree = {**GOOD, "common/base/b.h": '#ifndef COMMON_BASE_B_H\n#define COMMON_BASE_B_H\n#include "common/base/a.h"\n#endif\n'}
    for at, words in {**tree, name: text}.items():
        (tmp_path / at).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / at).write_text(words)
    code, words = walk(tmp_path)
    assert code == 1 and said in words, words
