"""The mirrors of a cluster are upgraded one after the other to a version that reads one more format (server/cluster/format.h)."""
import json
import shutil

import pytest

from harness.bucket import Bucket, Fault
from harness.mirrord import BUILD, free_port, until

NEXT = BUILD / "harness/next"


@pytest.fixture
def bucket():
    with Bucket() as b:
        yield b


@pytest.fixture
def node(mirrord, bucket, origin, tmp_path):
    """node(build) starts a mirror of the cluster."""
    keys, secret = bucket.keys_file(tmp_path), bucket.secret_file(tmp_path)

    def start(build, more="", **kw):
        port = free_port()
        return mirrord(f'''
            repo "models" {{ protocol = "hosted" }} trusted_proxies = {{"127.0.0.1"}}
            repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}
            listen "127.0.0.1:{port}" {{ }}
            cluster "{bucket.url}" {{ {bucket.access(keys)} poll = "100ms" heartbeat = "500ms"
                secret = "file:{secret}" address = "http://127.0.0.1:{port}" {more} }}''', build=build, **kw)
    return start


def states(m):
    return sorted(n["state"] for n in m.ctl_json("cluster", "nodes"))


def know(mirrors):
    until(lambda: all(states(m) == ["ready"] * len(mirrors) for m in mirrors))


def change(m, build):
    m.stop()
    m.build = build
    m.start()


# --- the format ---

def status_of(m):
    return json.loads(m.ctl("--json", "cluster", "status", check=False).stdout)


def format_of(m):
    return status_of(m)["format"]


def entries_of_format(bucket):
    """Entries of the log that write table 15, TABLE_FORMAT: operation, table, key, value."""
    return [key for key, raw in bucket.under("log/") if b"\x01\x0f\x00\x00\x00\x00\x00\x012" in raw]


def refused(m, words):
    """Its start fails."""
    with pytest.raises(AssertionError, match="did not come up"):
        m.start(fails=True)
    code, m.child = m.child.returncode, None
    assert words in m.log(), m.log()
    return code


NO_WAY_BACK = "the cluster has format 2; this version of mirrord reads formats up to 1: upgrade this mirror"


def test_the_format_rises_when_all_mirrors_read_it(node, bucket):
    mirrors = [node(BUILD) for _ in range(3)]
    a, b, c = mirrors
    know(mirrors)
    token = a.token("ci", "publish:models/*")
    assert [n["format"] for n in a.ctl_json("cluster", "nodes")] == [1, 1, 1]
    for m in (a, b, a):
        change(m, NEXT)
        know(mirrors)
        assert m.put(f"/models/me/gpt/{m.port}", b"1", token=token).status in (200, 201)
    assert sorted(n["format"] for n in a.ctl_json("cluster", "nodes")) == [1, 2, 2]
    change(a, BUILD)  # as long as one mirror is of the version before, the others can go back
    know(mirrors)
    assert {format_of(m) for m in mirrors} == {1} and not entries_of_format(bucket)
    for m in (a, c):
        change(m, NEXT)
    until(lambda: {format_of(m) for m in mirrors} == {2})
    assert len(entries_of_format(bucket)) == 1
    b.stop()
    b.build = BUILD
    assert refused(b, NO_WAY_BACK) == 69
    b.log_path.unlink()
    shutil.rmtree(b.state)  # nor with nothing: it meets the entry
    assert refused(b, NO_WAY_BACK) == 69
    assert a.put("/models/me/gpt/x", b"2", token=token).status == 201
    b.build = NEXT
    b.start()
    assert b.get("/models/me/gpt/x").body == b"2" and format_of(b) == 2
    assert a.ctl_json("cluster", "verify")["clean"]


def test_a_new_mirror_of_the_version_before_meets_a_checkpoint(node, bucket):
    a, b = (node(NEXT, more="checkpoint = 10") for _ in range(2))
    until(lambda: format_of(a) == 2)
    token = a.token("ci", "publish:models/*")
    for i in range(15):
        assert a.put(f"/models/me/gpt/{i}", b"x", token=token).status == 201
    until(lambda: bucket.under("ckpt/"))
    b.stop()
    shutil.rmtree(b.state)
    b.build = BUILD
    assert refused(b, NO_WAY_BACK) == 69
    b.build = NEXT
    b.start()
    assert b.get("/models/me/gpt/3").body == b"x" and format_of(b) == 2


def test_a_mirror_of_the_version_before_that_nobody_saw(node, bucket):
    """The others raise the format. It stops there, says so, and serves what it has; then it is upgraded."""
    bucket.faults = [Fault("503", "node/", ("PUT",))]
    b = node(BUILD)
    token = b.token("ci", "publish:models/*")
    assert b.put("/models/me/gpt/x", b"1", token=token).status == 201
    bucket.faults = [Fault("503", "node/" + b.ctl_json("cluster", "nodes")[0]["id"], ("PUT",))]
    a = node(NEXT)
    until(lambda: format_of(a) == 2)
    until(lambda: status_of(b)["state"] == "stopped")
    status = status_of(b)
    assert NO_WAY_BACK in status["why"] and status["format"] == 1
    assert "install the version that the other mirrors have" in json.dumps(status["trouble"])
    assert b.get("/models/me/gpt/x").body == b"1"
    refusal = b.put("/models/me/gpt/y", b"2", token=token)
    assert refusal.status >= 500 and a.put("/models/me/gpt/y", b"3", token=token).status == 201
    bucket.faults = []
    change(b, NEXT)
    assert b.get("/models/me/gpt/y").body == b"3" and b.put("/models/me/gpt/z", b"4", token=token).status == 201
