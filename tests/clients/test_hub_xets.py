"""hf_xet as it was in older years, with a huggingface_hub of its time: files from the mirror's own chunk store, and brought to it."""
import hashlib
import json
import os

import pytest

from clients.test_hub import TREE, World, venv
from clients.test_hub_large import asked

pytestmark = pytest.mark.xdist_group("hub home")

# Of hf_xet the last of each minor version, and what pip would put beside it.
PAIRS = [("1.0.5", "0.30.2"), ("1.1.10", "0.36.0"), ("1.2.0", "0.36.0"), ("1.3.2", "0.36.0"), ("1.4.3", "1.13.0"), ("1.5.2", "1.22.0"),
         ("1.6.0", ""), ("1.7.1", "")]
DOWN = TREE + "import json; from huggingface_hub import snapshot_download as s; print(json.dumps(tree(s('me/gpt'))))"
# Before huggingface_hub 1.20 the server chooses how files come, and ours chooses LFS: hf_xet is asked by itself.
UP = """
import json, sys, time, urllib.request, os, hf_xet
base, token = os.environ["HF_ENDPOINT"] + "/api/models/me/gpt", os.environ["HF_TOKEN"]
ask = urllib.request.Request(base + "/xet-write-token/main", headers={"Authorization": "Bearer " + token})
said = json.load(urllib.request.urlopen(ask))
done = hf_xet.upload_files([sys.argv[1]], said["casUrl"], (said["accessToken"], said["exp"]), lambda: (said["accessToken"], said["exp"]), None, "model")
print(json.dumps(len(done)))
"""


@pytest.mark.parametrize(("xet", "version"), PAIRS, ids=[x for x, _ in PAIRS])
def test_there_and_back(mirrord, tmp_path, xet, version):
    m = mirrord('repo "models" { protocol = "hosted" xet = "on" }')
    w = World(m, tmp_path)
    token = m.token("ci", "publish:models/me/*")
    w.env.update(HF_ENDPOINT=f"http://127.0.0.1:{m.port}/models", HF_TOKEN=token)
    bins = venv("huggingface_hub" + (f"=={version}" if version else ""), f"hf_xet=={xet}")
    data = os.urandom(3 << 20) + bytes(5 << 20) + b"text " * 600000
    (tmp_path / "w.bin").write_bytes(data)
    oid = hashlib.sha256(data).hexdigest()
    made = m.put("/models/api/repos/create", b'{"name": "gpt", "organization": "me"}', token=token, method="POST")
    assert made.status == 200
    assert w.python(bins, UP, tmp_path / "w.bin") == 1
    lines = [{"key": "header", "value": {"summary": "x"}}, {"key": "lfsFile", "value": {"path": "w.bin", "algo": "sha256", "oid": oid, "size": len(data)}}]
    done = m.put("/models/api/models/me/gpt/commit/main", "\n".join(map(json.dumps, lines)).encode(), token=token, method="POST")
    assert done.status == 200, done.body
    assert w.python(bins, DOWN) == {"w.bin": oid}
    assert asked(m, "GET", f"/data/{oid}") >= 1
    assert asked(m, "POST", "/xorb", 200) >= 1 and asked(m, "POST", "/shard", 200) == 1
