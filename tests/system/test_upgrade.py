"""A store that another version has written is opened by this one: every kind of row, then with all upstreams gone.

`make test-heavy` builds the version before from the last tag or, without one, from an older commit; MIRROR_BEFORE names a folder with the
mirrord and the mirrorctl of another. Else this version writes the store, too, and what is shown is that all of it outlives a restart.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import urllib.parse

import pytest

from harness.conda_channel import Channel
from harness.hub import Big, Hub
from harness.mirrord import BUILD
from harness.origin import Origin
from harness.python_index import Index
from harness.registry import Registry
from harness.tree_origin import TreeOrigin
from system.test_newcomer import HEAVY, source, version_before

pytestmark = pytest.mark.timeout(3600)  # with heavy tests a version is built
MIB = 1 << 20
BIG = os.urandom(3 * MIB)
LONG = "rule '' { ttl = 30d neg_ttl = 30d }"


class Upstreams:
    def __init__(self):
        self.origin, self.packages, self.hub, self.index, self.registry = Origin(), Origin(), Hub(), Index(), Registry()
        self.tree = TreeOrigin({"a.txt": b"one", "sub/b.bin": os.urandom(90000), "sub/deep/c": b""})
        self.gone = TreeOrigin({f"{n}.txt": b"%d" % n for n in range(20)})
        self.origin.put("/fresh", size=2 * MIB, fields="Cache-Control: max-age=9999999")
        self.origin.put("/for-good.deb", size=300_000)
        self.origin.put("/half", size=40 * MIB)
        for kind in ("text/html", "application/json"):
            self.origin.put("/kinds#" + kind, body=kind.encode(), fields="Cache-Control: max-age=9999999|Vary: Accept")
        self.origin.put("/kinds", body=b"plain", by="Accept", fields="Cache-Control: max-age=9999999|Vary: Accept")
        self.origin.put("/none", status=404)
        self.hub.repo("org/name", files={"config.json": b"{}", "model.safetensors": Big(70000), "d/x y": b"odd"})
        self.hub.repo("org/set", kind="datasets", files={"a.csv": b"1,2\n"})
        self.index.wheel("ourlib", "1.0")
        self.index.publish()
        self.registry.image("team/app", "v1")
        channel = Channel(self.packages)
        channel.add("a-1.0-0.conda", b"a" * 3000)
        channel.publish()

    def close(self):
        for upstream in (self.origin, self.packages, self.hub, self.registry, self.tree, self.gone):
            upstream.close()
        self.index.down()

    def asked(self):
        return self.origin.stats("/fresh").requests, len(self.hub.calls), self.registry.count()

    def config(self):
        return f"""
            {self.hub.config(more=LONG)}
            repo "data" {{ protocol = "generic" origin = "{self.origin.url}/" forward = {{"Accept"}} rule '\\.deb$' {{ class = immutable }} {LONG} }}
            repo "pypi" {{ protocol = "pypi" origin = "{self.index.url}" {LONG} }}
            repo "oci" {{ protocol = "oci" origin = "{self.registry.url}" {LONG} }}
            repo "forge" {{ protocol = "conda" origin = "{self.packages.url}" {LONG} }}
            repo "tree" {{ protocol = "generic" origin = "{self.tree.url}" sync {{ backoff = "100ms" tries = 2 }} }}
            repo "held" {{ protocol = "generic" origin = "{self.gone.url}" sync {{ backoff = "100ms" tries = 2 max_delete = "1" }} }}
            repo "models" {{ protocol = "hosted" }}"""


@pytest.fixture
def programs(tmp_path):
    """The folder with the programs that write the store."""
    if not HEAVY or "MIRROR_BEFORE" in os.environ:
        return pathlib.Path(os.environ.get("MIRROR_BEFORE", BUILD))
    tree = source(tmp_path / "before", version_before())
    done = subprocess.run(["make", f"-j{os.cpu_count()}", f"CC={'ccache gcc' if shutil.which('ccache') else 'gcc'}", "CUDA_HOME=/none", "build/mirrord", "build/mirrorctl"],
                          cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return tree / "build"


@pytest.fixture
def before(mirrord, programs):
    up = Upstreams()
    m = mirrord(up.config(), build=programs)
    m.up = up
    yield m
    up.close()


def publish(m, path, data):
    assert m.put(path, data, token=m.publisher).status == 201


def hub_api(m, path, *lines):
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return m.put(f"/models/api/{path}", body, token=m.publisher, method="POST")


def fill(m):
    """What there is to see of a mirror's life; paths that are to be the same afterwards."""
    up = m.up
    m.publisher = m.token("ci", "publish:models/*")
    paths = ["/data/fresh", "/data/for-good.deb", "/data/kinds", "/data/none", "/pypi/simple/ourlib/", "/v2/oci/team/app/manifests/v1",
             "/forge/linux-64/repodata.json", "/forge/linux-64/a-1.0-0.conda", "/hf/api/models/org/name", "/hf/api/models/org/name/tree/main",
             "/hf/org/name/resolve/main/config.json", "/hf/org/name/resolve/main/model.safetensors", "/hf/org/name/resolve/main/d/x%20y",
             "/hf/datasets/org/set/resolve/main/a.csv"]
    wheels = json.loads(m.get("/pypi/simple/ourlib/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}).body)["files"]
    paths += [urllib.parse.urljoin("/pypi/simple/ourlib/", f["url"]) for f in wheels]
    manifest = json.loads(m.get("/v2/oci/team/app/manifests/v1").body)["manifests"][0]["digest"]
    paths.append(f"/v2/oci/team/app/manifests/{manifest}")
    paths += [f"/v2/oci/team/app/blobs/{layer['digest']}" for layer in json.loads(m.get(paths[-1]).body)["layers"]]
    m.ctl("sync", "run", "tree", "--wait")
    up.tree.put("a.txt", b"another")
    up.tree.rm("sub/deep/c")
    m.ctl("sync", "run", "tree", "--wait")
    m.ctl("sync", "run", "held", "--wait")
    for n in range(15):
        up.gone.rm(f"{n}.txt")
    m.ctl("sync", "run", "held", "--wait", check=False)
    paths += ["/tree/", "/tree/a.txt", "/tree/sub/b.bin", "/tree/@v1/", "/tree/@v1/a.txt", "/held/", "/held/3.txt"]
    publish(m, "/models/me/gpt/a.txt", b"one")
    publish(m, "/models/me/gpt/sub/big.bin", BIG)
    publish(m, "/models/me/gpt/a.txt", b"two")
    assert hub_api(m, "repos/create", {"name": "hub", "organization": "me"}).status == 200
    assert hub_api(m, "models/me/hub/commit/main", {"key": "header", "value": {"summary": "s", "description": ""}},
                   {"key": "file", "value": {"path": "x", "content": "eA==", "encoding": "base64"}}).status == 200
    paths += ["/models/me/gpt/", "/models/me/gpt/a.txt", "/models/me/gpt/sub/big.bin", "/models/me/gpt@v1/a.txt", "/models/me/hub/x", "/models/api/models/me/hub",
              "/models/api/models/me/gpt/tree/main", "/models/me/gpt/resolve/main/a.txt"]
    for verb in (("hf", "pin", "org/name"), ("cache", "pin", "data/fresh")):
        m.ctl(*verb)
    opened = m.put("/models/me/gpt/-/uploads", b"", token=m.publisher, method="POST")["location"].replace(m.url(""), "")
    m.put(f"{opened}/late.bin", BIG[:2 * MIB], token=m.publisher, headers={"Content-Range": f"bytes 0-{2 * MIB - 1}/{len(BIG)}"})
    kinds = {a: m.get("/data/kinds", headers={"Accept": a}).body for a in ("text/html", "application/json")}
    assert kinds == {a: a.encode() for a in kinds}
    return paths, kinds, opened


def seen(m, paths):
    """Of a page its links: what stands around them is the program's, as is the head of a response."""
    def one(path):
        reply = m.get(path, headers={"Accept": "application/json, */*;q=0.1"})
        if (reply["content-type"] or "").startswith("text/html"):
            return reply.status, [h for h in re.findall(rb'href="([^"]+)"', reply.body) if not h.startswith(b"/") and h != b"../"]
        return reply.status, reply.body, reply["etag"]
    return {path: one(path) for path in paths}


def test_what_the_version_before_has_written(before):
    m, up = before, before.up
    paths, kinds, opened = fill(m)
    assert m.get("/data/half", headers={"Range": f"bytes={20 * MIB}-{30 * MIB - 1}"}).body == up.origin.bytes_of("/half", 20 * MIB, 30 * MIB)
    m.settle()
    was = seen(m, paths)
    assert {p: r[0] for p, r in was.items() if r[0] != 200} == {"/data/none": 404}
    verbs = (("cache", "pins"), ("snapshot", "ls", "tree"), ("snapshot", "ls", "held"), ("hf", "show", "org/name"))
    said = {v: m.ctl(*v).stdout for v in verbs}
    token = m.ctl("token", "ls").stdout.rsplit("\t", 1)[0]  # without its last use, of which no row is written at once
    m.forsaken()
    m.stop()

    m.build = BUILD
    m.start()
    asked = up.asked()
    now = seen(m, paths)
    assert {p: (was[p], now[p]) for p in paths if was[p] != now[p]} == {}
    assert {a: m.get("/data/kinds", headers={"Accept": a}).body for a in kinds} == kinds
    assert up.asked() == asked, "what was here is not fetched again"
    assert {v: m.ctl(*v).stdout for v in verbs} == said and m.ctl("token", "ls").stdout.startswith(token)
    assert m.get("/data/half").body == up.origin.bytes_of("/half") and up.origin.stats("/half").bytes < 48 * MIB, "what came of a file is used"
    offset = int(m.get(f"{opened}/late.bin", headers={"Authorization": f"Bearer {m.publisher}"}, head=True)["upload-offset"])
    assert m.put(f"{opened}/late.bin", BIG[offset:], token=m.publisher,
                 headers={"Content-Range": f"bytes {offset}-{len(BIG) - 1}/{len(BIG)}"}).status in (200, 201, 204)
    assert m.put(opened + "/commit", b"", token=m.publisher, method="POST").status == 201
    assert m.get("/models/me/gpt/late.bin").body == BIG and m.get("/models/me/gpt/a.txt").body == b"two"
    m.ctl("sync", "approve", "held")
    assert m.get("/held/3.txt").status == 404 and m.get("/held/17.txt").body == b"17"
    assert m.get("/tree/a.txt").body == b"another"
    m.ctl("snapshot", "rollback", "tree", "v1")
    assert m.get("/tree/a.txt").body == b"one"
    m.ctl("verify", "--deep")

    up.close()  # and with nobody left to ask
    m.stop()
    m.start()
    alone = [p for p in paths if not p.startswith(("/data/none", "/held/", "/tree/", "/models/me/gpt/", "/models/api/models/me/gpt"))]
    assert seen(m, alone) == {p: was[p] for p in alone}
