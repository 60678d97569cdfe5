"""trainer tokenize beside the `tokenizers` package: the same tokens of 10 MB of everything, one by one."""
import array
import json
import pathlib
import random
import subprocess
import sys
import sysconfig
import unicodedata

import pytest

from harness.mirrord import BUILD, ROOT

PEER = ROOT / "tests/harness/tokenizers_peer.py"
MIXED_BYTES = 10_000_000


@pytest.fixture(scope="session")
def peer(python):
    def run(*args):
        done = subprocess.run([python, PEER, *map(str, args)], capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
    if subprocess.run([python, "-c", "import tokenizers"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no tokenizers package in .venv: run make deps with a package index in reach")
    return run


def code():
    """Source of this machine's own programs, some MB of it."""
    files = sorted(pathlib.Path(sysconfig.get_path("stdlib")).rglob("*.py")) + sorted(ROOT.rglob("*.[ch]"))
    random.Random(1).shuffle(files)
    out, size = [], 0
    for f in files:
        if size > MIXED_BYTES // 2:
            break
        out.append(f.read_bytes())
        size += len(out[-1])
    return b"".join(out)


def strange():
    """Every assigned character next to others of all kinds, white space in all shapes, long runs, bytes that are no text."""
    rng = random.Random(2)
    # U+180E and what came after the tables' Unicode version is where engines may differ (split.h).
    known = [c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) not in ("Cn", "Cs")]
    shapes = [" ", "  ", "\n", "\r\n", "\r", "\t", "\u3000", "\xa0", "\x85", "\u2028", "a", "1", "!", "'s", "'S", "é", "中", "。", "😀"]
    yield "".join(known)
    yield "1".join(rng.sample(known, 40000))
    yield " ".join(rng.sample(known, 40000))
    yield "".join(rng.choices(shapes, k=400_000))
    yield "".join(rng.choices(known, k=100_000))
    yield " " * 100_000 + "\n" * 100_000 + "x" * 100_000 + "ab" * 50_000 + "é" * 50_000 + "0" * 50_000 + "=" * 50_000 + "\r\n" * 50_000
    yield "".join(rng.choice("etaoinshrdlu") for _ in range(500_000))


@pytest.fixture(scope="session")
def mixed(tmp_path_factory):
    rng = random.Random(3)
    languages = (ROOT / "tests/unit/agent/train/golden/make_tokenizers.py").read_text().split('"""')[3]
    text = code() + "".join(strange()).encode()
    text += bytes(rng.choices(b"ab \n\xff\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80\xed\xa0", k=200_000))
    sentences = languages.split(". ")
    while len(text) < MIXED_BYTES:
        text += " ".join(rng.choices(sentences, k=2000)).encode()
    path = tmp_path_factory.mktemp("mixed") / "mixed.txt"
    # Behind this mark a new document would begin, which the package knows nothing of.
    path.write_bytes(text.replace(b"<|end_of_text|>", b"<|begin_of_text|>"))
    return path


@pytest.mark.xdist_group("tokenizers")
@pytest.mark.parametrize("kind, vocab", [("gpt2", 8000), ("llama3", 32000)])
def test_ten_megabytes(peer, mixed, tmp_path, kind, vocab):
    tokenizer = tmp_path / "tokenizer.json"
    sample = tmp_path / "sample.txt"
    sample.write_bytes(mixed.read_bytes()[:3_000_000])
    peer("train", kind, vocab, sample, tokenizer)
    peer("encode", tokenizer, mixed, tmp_path / "want")
    subprocess.run([BUILD / "trainer", "tokenize", "--tokenizer", tokenizer, "--out", tmp_path / "out", mixed], check=True,
                   timeout=600)
    m = json.loads((tmp_path / "out/manifest.json").read_text())
    want, got = array.array("I", (tmp_path / "want").read_bytes()), []
    for shard in m["train"]["shards"]:
        got += array.array("H", (tmp_path / "out" / shard["file"]).read_bytes()[128:])
    assert got.pop() == m["end_of_text"]
    assert len(got) > 1_000_000
    assert len(got) == len(want)
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), None)
    assert at is None, f"token {at}: {got[at - 3:at + 3]}, the package has {list(want[at - 3:at + 3])}"
