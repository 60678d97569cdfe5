"""A mirror that stood alone moves into a bucket, and a mirror of a cluster moves out of it: mirrorctl cluster adopt, cluster leave."""
import concurrent.futures
import json
import os
import random
import signal
import subprocess
import threading

import pytest

from harness.bucket import Bucket, Fault
from harness.mirrord import BUILD, SLOW, free_port, until

REPO = 'repo "models" { protocol = "hosted" }'


@pytest.fixture
def bucket():
    with Bucket() as b:
        yield b


@pytest.fixture
def section(bucket, tmp_path):
    keys = bucket.keys_file(tmp_path)
    return (f'cluster "{bucket.url}" {{ endpoint = "{bucket.endpoint}" region = "eu-test-1" authorization = "file:{keys}" '
            'poll = "50ms" }')


@pytest.fixture
def alone(mirrord):
    """A mirror that stands alone, with two trees, versions, a token and a pin: m.token_text, m.files."""
    def start(conf=""):
        m = mirrord(f"{REPO} {conf}")
        m.alone = m.config
        m.secret = m.token("ci", "publish:models/*")
        m.files = {}
        for i in range(12):
            publish(m, f"/models/me/set{i % 2}/{i}", random.Random(i).randbytes(20_000 * i))
        publish(m, "/models/me/set0/large", random.Random(99).randbytes(3 << 20))
        publish(m, "/models/me/set0/0", b"again")
        m.ctl("cache", "pin", "models/me/set1")
        return m
    return start


def publish(m, path, data):
    got = m.put(path, data, token=m.secret)
    if got.status in (200, 201):
        m.files[path] = data
    return got


def restart(m, config):
    m.stop()
    m.config = config
    m.start()


def refused(m):
    """It does not start: the exit code, and what it says."""
    with pytest.raises(AssertionError):
        m.start(fails=True)
    code, m.child = m.child.returncode, None
    return code, m.log()


def state(m):
    return json.loads(m.ctl("cluster", "status", "--json", check=False).stdout)["state"]


def same_files(m, files):
    for path, data in files.items():
        got = m.get(path)
        assert got.status == 200 and got.body == data, (path, got)


# --- into a bucket ---

def test_a_mirror_moves_into_a_bucket(alone, section, mirrord, bucket):
    m = alone()
    versions = m.ctl("snapshot", "ls", "models", "me/set0", "--json").stdout
    restart(m, m.alone + section)
    m.says("cluster.not_joined")
    assert state(m) == "not joined" and not bucket.objects
    [t] = [t for t in json.loads(m.ctl("status", "--json", check=False).stdout)["trouble"] if t["kind"] == "cluster"]
    assert "stands alone" in t["what"] and "cluster adopt" in t["todo"]
    same_files(m, m.files)
    assert publish(m, "/models/me/set0/while-alone", b"1").status == 201  # it serves and stores as before
    assert m.get("/readyz").status == 200
    done = m.ctl_json("cluster", "adopt")
    assert done["bucket"].startswith(bucket.url) and done["uploaded_bytes"] > 3 << 20, done
    assert state(m) == "up" and m.ctl("status").returncode == 0
    assert publish(m, "/models/me/set0/after", b"2").status == 201
    other = mirrord(REPO + section)
    same_files(other, m.files)
    assert other.ctl("snapshot", "ls", "models", "me/set0", "--json").stdout != versions
    assert [p["scope"] for p in other.ctl_json("cache", "pins")] == ["models/me/set1"]
    other.secret, other.files = m.secret, m.files
    assert publish(other, "/models/me/set1/theirs", b"3").status == 201
    until(lambda: m.get("/models/me/set1/theirs").body == b"3")
    again = m.ctl("cluster", "adopt", check=False)
    assert again.returncode == 73 and "one of the cluster already" in again.stderr, again
    for node in (m, other):
        node.ctl("cache", "gc")
        node.ctl("verify", "--deep")
    restart(m, m.config)
    assert state(m) == "up"
    same_files(m, m.files)


# --- out of it ---

def test_a_mirror_moves_out_of_a_bucket(alone, section, mirrord, bucket):
    """One that has only names fetches everything, and then needs neither the bucket nor the section."""
    first = alone()
    restart(first, first.alone + section)
    first.ctl("cluster", "adopt")
    m = mirrord(REPO + section)
    same_files(m, dict(list(first.files.items())[:3]))
    done = m.ctl_json("cluster", "leave", "--local")
    assert done["fetched_bytes"] > 3 << 20
    assert state(m) == "not joined"
    m.secret, m.files = first.secret, dict(first.files)
    assert publish(m, "/models/me/set0/alone", b"1").status == 201
    assert publish(first, "/models/me/set0/cluster", b"2").status == 201
    bucket.down = True
    restart(m, REPO)
    same_files(m, m.files)
    assert m.get("/models/me/set0/cluster").status == 404 and first.get("/models/me/set0/alone").status == 404
    m.ctl("cache", "gc")
    m.ctl("verify", "--deep")
    assert "clean" in m.ctl("verify", "--deep", "--json").stdout
    assert publish(m, "/models/me/set0/later", b"3").status == 201
    bucket.down = False
    same_files(first, first.files)


def test_a_section_that_is_removed_too_early(alone, section, mirrord, bucket):
    m = alone()
    restart(m, m.alone + section)
    m.ctl("cluster", "adopt")
    m.stop()
    m.config = m.alone
    code, said = refused(m)
    assert code == 78 and "is the state_dir of a mirror of a cluster" in said and "cluster leave --local" in said
    m.config += section
    m.start()
    m.ctl("cluster", "leave", "--local")
    m.stop()
    code, said = refused(m)  # the section is still there, and the bucket has a cluster
    assert code == 73 and "has a cluster already" in said
    m.config = m.alone
    m.start()
    same_files(m, m.files)


def test_a_bucket_that_is_lost(alone, section, mirrord, bucket):
    """Without it, and without a daemon: what is on the disk stays."""
    m = alone()
    restart(m, m.alone + section)
    m.ctl("cluster", "adopt")
    other = mirrord(REPO + section)
    here = dict(list(m.files.items())[:3])
    same_files(other, here)
    other.stop()
    bucket.down = True
    leave = [BUILD / "mirrorctl", "-c", other.conf, "--socket", other.socket, "cluster", "leave", "--local"]
    done = subprocess.run(leave, capture_output=True, text=True, timeout=120 * SLOW)
    assert done.returncode == 65 and "files that trees hold are not on this disk" in done.stderr, done
    done = subprocess.run([*leave, "--force"], capture_output=True, text=True, timeout=120 * SLOW)
    assert done.returncode == 0 and "the store stands alone" in done.stdout, done
    other.config = REPO
    other.start()
    same_files(other, here)
    missing = next(path for path in m.files if path not in here)
    assert other.get(missing).status in (404, 500, 503)


# --- interrupted ---

def adopting(m):
    return subprocess.Popen([BUILD / "mirrorctl", "--socket", m.socket, "cluster", "adopt", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


class Publisher:
    """Publishes all the time, and notes what was acknowledged in m.files."""

    def __init__(self, m):
        self.m, self.stop, self.count = m, threading.Event(), 0
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def run(self):
        while not self.stop.is_set():
            path, data = f"/models/me/live{self.count % 3}/{self.count}", os.urandom(random.Random(self.count).choice((10, 5_000, 70_000)))
            if self.m.put(path, data, token=self.m.secret, limit_s=60).status == 201:
                self.m.files[path] = data
            self.count += 1


def acknowledged(m):
    return sum("/live" in path for path in m.files)


@pytest.mark.parametrize("keys, methods, more", [
    ("cluster.json", ("PUT",), ()), ("pack/", ("PUT",), ()), ("blob/", ("PUT",), ()), ("idx/", ("PUT",), ()), ("ckpt.part/", ("PUT",), ()),
    ("ckpt/", ("PUT",), ()), ("log/0/0{19}1", ("PUT",), ()),
    ("log/0/0{19}1", ("GET",), ("cut-after",)),  # it is there, and the mirror does not know it yet
    ("log/0/0{19}1", ("GET",), ("late",)),
    ("log/0/0{19}2", ("GET",), ())])
def test_a_move_that_is_killed(alone, section, mirrord, bucket, keys, methods, more):
    """At any step: what was acknowledged is there, on this mirror and on one that joins afterwards."""
    m = alone()
    restart(m, m.alone + section)
    bucket.faults = [*(Fault(kind, keys, ("PUT",), first=1) for kind in more), Fault("slow", keys, methods, delay=3600)]
    if methods == ("GET",) and keys.endswith("1"):
        bucket.faults[-1].skip = 1  # the look whether there is a cluster already
    waits = threading.Event()
    bucket.faults[-1].struck = waits
    with Publisher(m):
        until(lambda: acknowledged(m) > 3)
        move = adopting(m)
        assert waits.wait(120 * SLOW)
        if more:
            until(lambda: bucket.under("log/"))
        m.kill()
        move.communicate(timeout=120 * SLOW)
    bucket.faults = []
    m.start()
    same_files(m, m.files)
    if state(m) != "up":
        assert state(m) == "not joined" and publish(m, "/models/me/live0/between", b"1").status == 201
        m.ctl("cluster", "adopt")
    assert state(m) == "up" and publish(m, "/models/me/live0/after", b"2").status == 201
    other = mirrord(REPO + section)
    same_files(other, m.files)
    for node in (m, other):
        node.ctl("verify", "--deep")
        assert [t["name"] for t in node.ctl_json("token", "ls")] == ["ci"]
