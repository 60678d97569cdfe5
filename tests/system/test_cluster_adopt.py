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
from harness.mirrord import BUILD, SLOW, Mirrord, until

REPO = 'repo "models" { protocol = "hosted" }'


@pytest.fixture
def bucket():
    with Bucket() as b:
        yield b


@pytest.fixture
def section(bucket, tmp_path):
    keys = bucket.keys_file(tmp_path)
    return (f'cluster "{bucket.url}" {{ {bucket.access(keys)} '
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
    assert state(m) == "not joined" and not bucket.objects and m.metric("mirrord_cluster_up") == 0
    [t] = [t for t in json.loads(m.ctl("status", "--json", check=False).stdout)["trouble"] if t["kind"] == "cluster"]
    assert "stands alone" in t["what"] and "cluster adopt" in t["todo"]
    same_files(m, m.files)
    assert publish(m, "/models/me/set0/while-alone", b"1").status == 201  # it serves and stores as before
    assert m.get("/readyz").status == 200
    done = m.ctl_json("cluster", "adopt")
    assert done["bucket"].startswith(bucket.url) and done["uploaded_bytes"] > 3 << 20, done
    assert state(m) == "up" and m.ctl("status").returncode == 0 and m.metric("mirrord_cluster_up") == 1
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
    [t] = [t for t in json.loads(m.ctl("status", "--json", check=False).stdout)["trouble"] if t["kind"] == "cluster"]
    assert "has left the cluster" in t["what"] and t["todo"] == "remove the section before the next start", t
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
    return sum("/live" in path for path in list(m.files))  # a Publisher adds some meanwhile


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


def test_a_move_whose_log_cannot_be_read_at_the_end(alone, section, mirrord, bucket):
    """The last step was begun, so the mirror is the cluster's now. It tries to follow the log until it succeeds; it refused all changes until a
    restart."""
    m = alone()
    restart(m, m.alone + section)
    bucket.faults = [Fault("read-only", "log/0/0{19}2", ("GET",))]
    move = adopting(m)
    until(lambda: sum(bucket.faults[0].seen.values()) > 3 or move.poll() is not None)
    bucket.faults = []
    out, why = move.communicate(timeout=120 * SLOW)
    assert move.returncode == 0, out + why
    assert state(m) == "up" and publish(m, "/models/me/live0/after", b"2").status == 201
    same_files(mirrord(REPO + section), m.files)


def test_a_move_goes_on_where_it_was(alone, section, mirrord, bucket):
    """What an index names is not uploaded again."""
    m = alone()
    for i in range(40):
        publish(m, f"/models/me/big/{i}", random.Random(1000 + i).randbytes((1 << 20) + i))
    restart(m, m.alone + section)
    bucket.faults = [Fault("slow", "blob/", ("PUT",), delay=1)]
    move = adopting(m)
    until(lambda: bucket.under("idx/"))
    m.kill()
    move.communicate(timeout=120 * SLOW)
    until(lambda: not bucket.connections)  # the bucket does what it was asked for before the kill
    bucket.faults = []
    blobs = len(bucket.under("blob/"))
    named = sum(int.from_bytes(raw[8:12], "big") for _, raw in bucket.under("idx/"))  # objects, with packs
    m.start()
    m.ctl("cluster", "adopt")
    assert len(bucket.under("blob/")) <= 41 + blobs - (named - len(bucket.under("pack/"))), (blobs, named)
    assert named > 4
    other = mirrord(REPO + section)
    same_files(other, m.files)


def test_a_move_that_its_caller_leaves(alone, section, bucket):
    """Ctrl-C: the mirror stands alone as before, and the next call goes on."""
    m = alone()
    restart(m, m.alone + section)
    bucket.faults = [Fault("slow", "blob/", ("PUT",), delay=15)]  # it runs for as long as that, at least
    move = adopting(m)
    until(lambda: bucket.counts.get(("PUT", "blob")))
    busy = m.ctl("cluster", "adopt", check=False)
    assert busy.returncode == 75 and "running already" in busy.stderr, busy
    move.send_signal(signal.SIGINT)
    move.communicate(timeout=120 * SLOW)
    bucket.faults = []
    until(lambda: m.ctl("cluster", "adopt", check=False).returncode in (0, 73))  # 73: the move was quicker than the signal
    assert state(m) == "up"
    same_files(m, m.files)


def test_mirrors_that_wait_for_a_move(alone, section, bucket, request):
    """An empty one that starts meanwhile has nothing to serve, and writes nothing. Then it has everything."""
    m = alone()
    restart(m, m.alone + section)
    go_on = Fault("slow", "ckpt/", ("PUT",), delay=3600)
    go_on.struck = threading.Event()
    bucket.faults = [go_on]
    move = adopting(m)
    assert go_on.struck.wait(120 * SLOW)
    held = threading.Thread(target=publish, args=(m, "/models/me/set0/held", b"waits"))
    held.start()
    early = Mirrord(REPO + section, cert=m.cert)
    request.addfinalizer(early.remove)
    before = bucket.counts.get(("PUT", "probe"), 0)
    early.start(wait=False)
    until(lambda: bucket.counts.get(("PUT", "probe"), 0) > before + 100)
    assert early.child.poll() is None and not bucket.under("log/")
    same_files(m, m.files)  # it serves while changes wait
    m.kill()
    move.communicate(timeout=120 * SLOW)
    held.join()
    bucket.faults = []
    m.start()
    assert state(m) == "up"
    assert early.wait_ready(), early.log()
    m.files.pop("/models/me/set0/held", None)
    same_files(early, m.files)
    assert early.put("/models/me/set1/new", b"1", token=m.secret).status == 201


@pytest.mark.parametrize("kind", ["503", "read-only", "full"])
def test_a_bucket_that_fails_at_the_end(alone, section, mirrord, bucket, kind):
    """The checkpoint cannot be written: the mirror stands alone again, and nothing waits."""
    m = alone()
    restart(m, m.alone + section)
    bucket.faults = [Fault(kind, "ckpt", ("PUT",))]
    with Publisher(m):
        done = m.ctl("cluster", "adopt", check=False, limit_s=600)
        assert done.returncode != 0 and state(m) == "not joined", done
        before = acknowledged(m)
        until(lambda: acknowledged(m) > before + 3)
        bucket.faults = []
        m.ctl("cluster", "adopt")
    other = mirrord(REPO + section)
    same_files(other, m.files)
    assert len(bucket.under("ckpt/")) == 1


def test_a_bucket_that_does_not_say_whether_it_took_the_first_entry(alone, section, mirrord, bucket):
    """Changes are refused in words until it does; reads go on."""
    m = alone()
    restart(m, m.alone + section)
    bucket.faults = [Fault("cut", "log/0/0{19}1", ("PUT",))]
    move = adopting(m)
    m.says("cluster.founding")
    refused = m.put("/models/me/set0/x", b"no", token=m.secret)
    assert refused.status == 503 and refused["retry-after"], refused
    same_files(m, m.files)
    bucket.faults = []
    assert move.wait(timeout=120 * SLOW) == 0
    assert publish(m, "/models/me/set0/x", b"yes").status == 201
    same_files(mirrord(REPO + section), m.files)


def test_a_bucket_with_a_cluster(alone, section, mirrord, bucket):
    m = alone()
    mirrord(REPO + section).token("theirs", "read:models/*")
    m.stop()
    m.config += section
    code, said = refused(m)
    assert code == 73 and "has a cluster already" in said
    m.config = m.alone
    m.start()
    same_files(m, m.files)


# --- out of it, interrupted ---

def test_a_leave_that_is_killed(alone, section, mirrord, bucket):
    """It is a mirror of the cluster still, and what was fetched is not fetched again."""
    first = alone()
    for i in range(12):
        publish(first, f"/models/me/big/{i}", random.Random(1000 + i).randbytes((1 << 20) + i))
    restart(first, first.alone + section)
    first.ctl("cluster", "adopt")
    m = mirrord(REPO + section)
    bucket.faults = [Fault("slow", "blob/", ("GET",), delay=1)]
    leave = subprocess.Popen([BUILD / "mirrorctl", "--socket", m.socket, "cluster", "leave", "--local"], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    until(lambda: json.loads(m.ctl("cluster", "status", "--json").stdout)["fetched"] >= 5)  # also small ones, from packs
    until(lambda: bucket.counts.get(("GET", "blob"), 0) >= 8)  # four are fetched at a time, so four of these have come
    m.kill()
    leave.communicate(timeout=120 * SLOW)
    bucket.faults = []
    m.start()
    assert state(m) == "up"
    fetched = bucket.counts.get(("GET", "blob"), 0)
    m.ctl("cluster", "leave", "--local")
    assert bucket.counts.get(("GET", "blob"), 0) - fetched < 13
    bucket.down = True
    restart(m, REPO)
    same_files(m, first.files)
    m.ctl("verify", "--deep")


def test_a_leave_without_room(alone, section, mirrord, bucket):
    first = alone()
    restart(first, first.alone + section)
    first.ctl("cluster", "adopt")
    m = mirrord(f'{REPO} {section} storage {{ quota = "2m" reserve = "1m" }}')
    done = m.ctl("cluster", "leave", "--local", check=False)
    assert done.returncode == 73 and "the trees hold" in done.stderr and "raise storage.quota" in done.stderr, done
    assert state(m) == "up"


def test_others_publish_while_one_leaves(alone, section, mirrord, bucket):
    """What it has at the end is a state that the cluster had: every tree whole."""
    first = alone()
    restart(first, first.alone + section)
    first.ctl("cluster", "adopt")
    m = mirrord(REPO + section)
    with Publisher(first):
        until(lambda: acknowledged(first) > 5)
        before = dict(first.files)
        last = list(before)[-1]
        until(lambda: m.get(last).status == 200)  # it has read the log so far: who leaves takes along what it knows
        m.ctl("cluster", "leave", "--local")
    bucket.down = True
    restart(m, REPO)
    same_files(m, {path: data for path, data in before.items()})
    m.ctl("verify", "--deep")
    m.ctl("cache", "gc")


def test_a_leave_during_a_long_upload(alone, section, mirrord, bucket):
    """It does not hold the changes of all clients until the upload has ended."""
    first = alone()
    restart(first, first.alone + section)
    first.ctl("cluster", "adopt")
    m = mirrord(REPO + section)
    m.secret, m.files = first.secret, {}
    bucket.faults = [Fault("slow", "blob/", ("PUT",), delay=3600)]
    bucket.faults[0].struck = threading.Event()
    upload = threading.Thread(target=publish, args=(m, "/models/me/set0/long", random.Random(7).randbytes(3 << 20)))
    upload.start()
    assert bucket.faults[0].struck.wait(120 * SLOW)
    left = m.ctl("cluster", "leave", "--local", check=False)
    assert left.returncode != 0 and "still being uploaded" in left.stderr, left
    assert state(m) == "up"
    m.token("other", "read:*")
    m.stop()
    upload.join()


@pytest.mark.parametrize("keys", ["blob/", "ckpt/", "log/"])
def test_a_stop_does_not_wait_for_a_move(alone, section, mirrord, bucket, keys):
    m = alone("drain = \"1s\"")
    restart(m, m.alone + section)
    bucket.faults = [Fault("slow", keys, ("PUT",), delay=3600)]
    bucket.faults[0].struck = threading.Event()
    move = adopting(m)
    assert bucket.faults[0].struck.wait(120 * SLOW)
    m.stop()
    move.communicate(timeout=120 * SLOW)
    bucket.faults = []
    m.start()
    if state(m) == "not joined":
        m.ctl("cluster", "adopt")
    same_files(mirrord(REPO + section), m.files)


def test_a_stop_does_not_wait_for_a_leave(alone, section, mirrord, bucket):
    first = alone()
    restart(first, first.alone + section)
    first.ctl("cluster", "adopt")
    m = mirrord(REPO + section)
    bucket.faults = [Fault("slow", "blob/", ("GET",), delay=3600)]
    bucket.faults[0].struck = threading.Event()
    leave = subprocess.Popen([BUILD / "mirrorctl", "--socket", m.socket, "cluster", "leave", "--local"], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert bucket.faults[0].struck.wait(120 * SLOW)
    m.stop()
    leave.communicate(timeout=120 * SLOW)
    bucket.faults = []
    m.start()
    assert state(m) == "up"
    same_files(m, first.files)
