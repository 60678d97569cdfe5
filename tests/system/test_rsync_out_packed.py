"""Stock rsync clients that ask for compression (-z)."""
import os
import random
import re

import pytest

from harness.rsync_out import Out, contents

R = random.Random(7)
TEXT = b"".join(b"line %d of %d\n" % (i, R.randrange(1000)) for i in range(80_000))
NOISE = os.urandom(700_000)
FILES = {"empty": b"", "one": b"x", "text": TEXT, "noise": NOISE, "noise.gz": NOISE[:300_000], "text.gz": TEXT[:200_000],
         # the ends of a trial, of a stored block, of a token
         "trial": TEXT[:256 << 10], "trial+1": TEXT[:(256 << 10) + 1], "stored.xz": NOISE[:32 << 10],
         "token": NOISE[:16383], "mixed": NOISE[:600_000] + TEXT + NOISE[:300_000], "zeros": bytes(5_000_000)}
WAYS = [("-z",), ("-z", "--zc=zstd"), ("-z", "--zc=zlibx"), ("-z", "--zc=zlib"), ("-z", "--zc=none"), ("--old-compress",),
        ("--new-compress",), ("-zz",), ("-z", "--protocol=30"), ("-z", "--protocol=31"), ("--old-compress", "--protocol=30"),
        ("-z", "--zc=zstd", "--protocol=30"), ("-z", "--compress-level=9"), ("-z", "--cc=md5"),
        ("--zc=zlib", "--skip-compress=x/tex[s-u]/no*")]


@pytest.fixture
def filled(mirrord, client):
    out = Out(mirrord, client("rsync"))
    for path, data in FILES.items():
        out.put(path.replace("+", "%2B"), data)
    out.tree = out.url + "/models/me/tree/"
    return out


def test_every_way_brings_the_same(filled, tmp_path):
    for i, way in enumerate(WAYS):
        filled.run("-rt", *way, filled.tree, f"{tmp_path}/{i}/")
        assert contents(tmp_path / str(i)) == FILES, way


def received(text):
    return int(re.search(r"Total bytes received: ([\d,]+)", text).group(1).replace(",", ""))


@pytest.mark.parametrize("way", ["zstd", "zlib", "zlibx"])
def test_fewer_bytes_where_there_are_fewer(filled, tmp_path, way):
    def cost(*names):
        rules = [f"--include=/{n}" for n in names] + ["--exclude=*"]
        return received(filled.run("-rt", f"--zc={way}", "--stats", *rules, filled.tree, f"{tmp_path}/{names[0]}/").stdout)
    assert cost("text") < len(TEXT) * 0.5
    assert cost("zeros") < 100_000
    assert cost("noise") < len(NOISE) * 1.003 + 1000
    assert cost("mixed") < len(FILES["mixed"]) - len(TEXT) * 0.2
    if way != "zstd":  # its name says that it is compressed: nobody looks
        assert cost("text.gz") > 200_000


@pytest.mark.parametrize("way", ["zstd", "zlib"])
def test_changed_files_come_whole(filled, tmp_path, way):
    """The client sends sums of what it has; they are read past, also between compressed files."""
    filled.run("-rt", filled.tree, f"{tmp_path}/dst/")
    for name in ("text", "noise", "mixed"):
        data = bytearray(FILES[name])
        data[1000:1004] = b"----"
        filled.put(name, bytes(data) + b"!")
    said = filled.run("-rt", "--no-whole-file", f"--zc={way}", "--stats", filled.tree, f"{tmp_path}/dst/").stdout
    assert re.search(r"Matched data: 0 bytes", said), said
    assert contents(tmp_path / "dst")["text"] == TEXT[:1000] + b"----" + TEXT[1004:] + b"!"
    assert contents(tmp_path / "dst")["mixed"].endswith(NOISE[:300_000] + b"!")


@pytest.mark.parametrize("way", ["zstd", "zlib"])
def test_large_files(filled, tmp_path, way):
    size = 100 << 20
    block = NOISE + TEXT
    data = (block * (size // len(block) + 1))[:size]
    filled.put("large", data)
    filled.run("-rt", f"--zc={way}", "--include=large", "--exclude=*", filled.tree, f"{tmp_path}/dst/")
    assert contents(tmp_path / "dst") == {"large": data}
