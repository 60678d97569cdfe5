"""What no version names any more is deleted from a cluster's bucket, and nothing else is, whatever happens in between."""
import asyncio
import concurrent.futures
import json
import os
import random
import signal
import time

import pytest

from harness.bucket import Fault
from harness.mirrord import SLOW, until
from system.test_cluster import bucket, found, has, node, seen  # noqa: F401  (fixtures)
from system.test_hosted_hub import Hub, file

SOON = 'collect = "0s" collect_delay = "0s"'
PREFIXES = ("pack/", "blob/", "idx/", "dead/")


def keys(bucket, *prefixes):
    return sorted(k.removeprefix("prod/") for p in prefixes or PREFIXES for k, _ in bucket.under(p))


def versions(m, name="me/gpt"):
    return sorted(r["seq"] for r in m.ctl_json("snapshot", "ls", "models", name))


def forget_old(m, name="me/gpt"):
    """Deletes all versions but the live one."""
    for seq in versions(m, name)[:-1]:
        m.ctl("snapshot", "rm", "models", name, f"v{seq}")


def collect(m, *more):
    return m.ctl_json("cluster", "gc", *more)


def status(m):
    return json.loads(m.ctl("--json", "cluster", "status", check=False).stdout)


def swept(m):
    """Waits until nothing is condemned any more."""
    until(lambda: status(m)["condemned"] == 0)


def fresh(node, files, more=SOON, **kw):
    """A mirror with an empty state_dir reads all of it, and misses nothing in the bucket. files: path -> bytes."""
    m = node(more, **kw)
    for path, data in files.items():
        got = m.get(path)
        assert (got.status, got.body) == (200, data), (path, got.status, got.body[:200])
    m.ctl("verify", "--deep")
    found = m.ctl("--json", "cluster", "verify", "--deep", check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return m


def age(bucket, days=8):
    """All content is that old. The bucket's own thread does it: what is deleted at the same time must not come back."""
    async def change():
        for key, (raw, at) in bucket.objects.items():
            if key.removeprefix("prod/").startswith(PREFIXES):
                bucket.objects[key] = (raw, at - days * 86400)
    asyncio.run_coroutine_threadsafe(change(), bucket.loop).result()


def newest_entry(bucket):
    return int(keys(bucket, "log/0/")[-1].rpartition("/")[2])


class Held:
    """The bucket holds one request back; reached() is true once it is there."""

    def __init__(self, bucket, key, method):
        self.bucket, self.fault = bucket, Fault("slow", key, (method,), delay=3600)
        bucket.faults = [self.fault]

    def reached(self):
        return bool(self.fault.seen)

    def drop(self):
        self.bucket.faults = []


def put(m, token, path, data):
    got = m.put(path, data, token=token)
    assert got.status in (200, 201), got


def remove(m, token, path):
    assert m.put(path, None, token=token, method="DELETE").status in (200, 204)


def test_what_no_version_names_is_deleted(node, bucket):
    a = node(SOON)
    token = a.token("ci", "publish:models/*")
    small, large = os.urandom(50_000), os.urandom(3_000_000)
    put(a, token, "/models/me/gpt/small", small)
    put(a, token, "/models/me/gpt/large", large)
    put(a, token, "/models/me/gpt/stays", b"stays")
    before = keys(bucket)
    assert collect(a)["condemned"] == 0 and keys(bucket) == before, "all of it is named"
    for path in ("small", "large"):
        remove(a, token, f"/models/me/gpt/{path}")
    forget_old(a)
    before = keys(bucket)
    dry = collect(a, "--dry-run")
    assert dry["condemned"] > 2 and dry["condemned_bytes"] > 3_000_000 and keys(bucket) == before
    done = collect(a)
    assert done["condemned"] >= dry["condemned"] and done["condemned_bytes"] >= 3_000_000
    swept(a)
    assert not keys(bucket, "blob/")
    assert sum(len(body) for _, body in bucket.under("pack/")) < 5_000
    files = {"/models/me/gpt/stays": b"stays"}
    fresh(node, files)
    # What was collected can be published again.
    put(a, token, "/models/me/gpt/small", small)
    put(a, token, "/models/me/gpt/large", large)
    files |= {"/models/me/gpt/small": small, "/models/me/gpt/large": large}
    fresh(node, files)


def test_versions_that_stay_keep_what_they_name(node, bucket):
    """Also those that are not live, those of other trees, and what only a pack that is half dead still has."""
    a = node(SOON)
    token = a.token("ci", "publish:models/*")
    files = {f"/models/me/gpt/d{i % 3}/{i}": os.urandom(20_000 + i) for i in range(30)}
    for path, data in files.items():
        put(a, token, path, data)
    twin = {path.replace("gpt", "twin"): data for path, data in list(files.items())[:4]}
    for path, data in twin.items():
        put(a, token, path, data)
    kept = versions(a)[9]  # ten files
    for path in list(files)[:28]:
        remove(a, token, path)
    for seq in versions(a)[:-1]:
        if seq != kept:
            said = a.ctl("snapshot", "rm", "models", "me/gpt", f"v{seq}").stdout
            assert "`mirrorctl cluster gc`" in said and "collect_delay" in said
    assert a.ctl("cluster", "gc").stdout.endswith("what is condemned is deleted once collect_delay has passed\n")
    for _ in range(2):
        collect(a)
        swept(a)
        names = list(files)
        live = {path: files[path] for path in names[28:]} | twin
        live |= {path.replace("gpt/", f"gpt@v{kept}/"): files[path] for path in names[:10]}
        fresh(node, live).stop()
        for path in names[10:28]:
            assert a.get(path).status == 404
    assert sum(len(body) for _, body in bucket.under("pack/")) < 22_000 * 14
    # The mirror that collected forgets nodes of its own, too, and can publish them again.
    for path in names[10:20]:
        put(a, token, path, files[path])
        live[path] = files[path]
    fresh(node, live)


def test_small_indexes_and_packs_become_one(node, bucket):
    a, b = node(SOON), node(SOON)
    token = a.token("ci", "publish:models/*")
    files = {f"/models/me/gpt/{i}": os.urandom(100 + i) for i in range(40)}
    for path, data in files.items():
        put(a, token, path, data)
    assert len(keys(bucket, "idx/")) >= 40 and len(keys(bucket, "pack/")) >= 40
    done = collect(a)
    assert done["copied_bytes"] > 0
    swept(a)
    assert len(keys(bucket, "idx/")) <= 2 and len(keys(bucket, "pack/")) == 1, keys(bucket)
    for path, data in files.items():
        found(b, path, data)  # whose places have moved
    b.ctl("verify", "--deep")
    fresh(node, files)


def published_and_removed(m, token, files):
    """Their bytes are in the bucket, and no version names them."""
    for path, data in files.items():
        put(m, token, path, data)
    put(m, token, "/models/me/gpt/stays", b"stays")
    for path in files:
        remove(m, token, path)
    forget_old(m)
    return {"/models/me/gpt/stays": b"stays"}


STEPS = [("idx/", "PUT"), ("pack/", "PUT"), ("dead/", "PUT"), ("log+1", "PUT"), ("log+2", "PUT"), ("log+3", "PUT"), ("ckpt.part/", "PUT"),
         ("ckpt/", "PUT"), ("dead/", "GET"), ("pack/", "DELETE"), ("blob/", "DELETE"), ("idx/", "DELETE"), ("log+4", "PUT"), ("dead/", "DELETE")]


@pytest.mark.parametrize("key, method", STEPS, ids=lambda v: v.strip("/"))
def test_a_mirror_is_killed_at_each_step(node, bucket, key, method):
    """Whatever it left, the next collection ends it, and what trees name is there all the time."""
    a, b = node(SOON), node(SOON)
    token = a.token("ci", "publish:models/*")
    gone = {f"/models/me/gpt/{i}": os.urandom(30_000 if i else 2_000_000) for i in range(4)}
    live = published_and_removed(a, token, gone)
    until(lambda: versions(b) == versions(a))
    if key.startswith("log"):
        key = f"log/0/{newest_entry(bucket) + int(key[3:]):020}"
    held = Held(bucket, key, method)
    child = a.start_ctl("cluster", "gc")
    until(held.reached)
    a.kill()
    child.wait(60 * SLOW)
    held.drop()
    for path, data in live.items():
        found(b, path, data)
    put(b, token, "/models/me/gpt/new", b"new")
    put(b, token, "/models/me/gpt/0", gone["/models/me/gpt/0"])  # what is or was about to be deleted
    live |= {"/models/me/gpt/new": b"new", "/models/me/gpt/0": gone["/models/me/gpt/0"]}
    fresh(node, live).stop()
    a.start()
    collect(a)
    swept(a)
    age(bucket)
    collect(a)
    m = fresh(node, live)
    assert m.ctl_json("cluster", "verify")["orphans"] == 0


def test_content_is_published_again_while_the_collector_sleeps(node, bucket):
    """Between the entry that condemns and the deletion: the new upload has another key."""
    a, b = node('collect = "0s" collect_delay = "2s"'), node('collect = "0s" collect_delay = "1d"')
    token = a.token("ci", "publish:models/*")
    gone = {f"/models/me/gpt/{i}": os.urandom(30_000 if i else 2_000_000) for i in range(4)}
    live = published_and_removed(a, token, gone)
    until(lambda: versions(b) == versions(a))
    collect(a)
    condemned = set(keys(bucket, "pack/", "blob/"))
    os.kill(a.child.pid, signal.SIGSTOP)
    for path, data in gone.items():
        put(b, token, path, data)
    again = set(keys(bucket, "blob/")) - condemned
    assert len(again) == 1
    os.kill(a.child.pid, signal.SIGCONT)
    b.stop()
    swept(a)
    assert set(keys(bucket, "blob/")) == again
    fresh(node, live | gone)


def test_a_publish_sleeps_until_its_places_are_gone(node, bucket):
    """It has found a folder of its tree in the bucket, and was stopped. When it goes on, the folder was condemned and deleted."""
    a, b = node(SOON), node(SOON)
    hub, files = Hub(a), {f"d/{i}": os.urandom(5_000) for i in range(200)}
    assert hub.create().status == 200
    assert hub.commit(file("stays", b"stays"), *(file(*f) for f in files.items())).status == 200
    assert hub.commit(("deletedFolder", {"path": "d"})).status == 200
    forget_old(a)
    hub = Hub(b, "h2")
    assert hub.create("other").status == 200
    until(lambda: versions(b) == versions(a))
    held = Held(bucket, "pack/", "PUT")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        client = pool.submit(hub.commit, file("new", b"new"), *(file(*f) for f in files.items()), name="other")
        until(held.reached)
        os.kill(b.child.pid, signal.SIGSTOP)
        held.drop()
        assert collect(a)["condemned"] > 0
        swept(a)  # b counts as dead after 20 seconds
        os.kill(b.child.pid, signal.SIGCONT)
        assert client.result().status == 200
    fresh(node, {"/models/me/gpt/stays": b"stays", "/models/me/other/new": b"new"} | {f"/models/me/other/{p}": d for p, d in files.items()})


def test_an_upload_is_older_than_what_counts_as_an_orphan(node, bucket):
    """A publish has uploaded its content and was stopped before its entry. What it has uploaded is deleted, and uploaded again."""
    old = 'collect = "0s" collect_delay = "0s" orphan_age = "1s"'
    a, b = node(old), node(old)
    token = a.token("ci", "publish:models/*")
    put(a, token, "/models/me/gpt/one", b"one")
    data = os.urandom(40_000)
    until(lambda: has(b, "/models/me/gpt/one", b"one"))
    before = set(keys(bucket, "pack/"))
    held = Held(bucket, "idx/", "PUT")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        client = pool.submit(b.put, "/models/me/gpt/two", data, token=token)
        until(lambda: held.reached() and set(keys(bucket, "pack/")) - before)  # both are sent at the same time
        os.kill(b.child.pid, signal.SIGSTOP)
        held.drop()
        orphans = set(keys(bucket, "pack/")) - before
        time.sleep(2.5)  # it is the bucket's clock that counts
        assert collect(a)["orphans"] >= 1
        assert not orphans & set(keys(bucket, "pack/"))
        os.kill(b.child.pid, signal.SIGCONT)
        assert client.result().status in (200, 201)
    fresh(node, {"/models/me/gpt/one": b"one", "/models/me/gpt/two": data}, more=old)


def test_a_collector_that_spares_more_does_not_lower_t(node, bucket):
    """An upload was deleted as an orphan by the mirror that waits the least. Another collector, with a longer orphan_age, then deletes orphans,
    too; the publish must meet the T of the first one, or it would rely on what is gone."""
    old = 'collect = "0s" collect_delay = "0s" orphan_age = "1s"'
    failed = "prod/pack/01/0123456789abcdef"
    a, b, c = node(old), node(old), node(SOON)
    token = a.token("ci", "publish:models/*")
    put(a, token, "/models/me/gpt/one", b"one")
    data = os.urandom(40_000)
    for m in (b, c):
        seen(m, "/models/me/gpt/one", b"one")
    before = set(keys(bucket, "pack/"))
    held = Held(bucket, "idx/", "PUT")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        client = pool.submit(b.put, "/models/me/gpt/two", data, token=token)
        until(lambda: held.reached() and set(keys(bucket, "pack/")) - before)  # both are sent at the same time
        os.kill(b.child.pid, signal.SIGSTOP)
        held.drop()
        try:
            time.sleep(2.5)  # it is the bucket's clock that counts
            assert collect(a)["orphans"] >= 1
            bucket.objects[failed] = (b"of an upload that failed", time.time() - 8 * 86400)
            until(lambda: c.ctl("cluster", "gc", check=False).returncode == 0 and failed not in bucket.objects)
        finally:
            os.kill(b.child.pid, signal.SIGCONT)
        assert client.result().status in (200, 201)
    fresh(node, {"/models/me/gpt/one": b"one", "/models/me/gpt/two": data}, more=old)


def test_a_mirror_that_was_off_for_a_week(node, bucket):
    """Entries that it has not applied name indexes that are gone by now: it reads the checkpoint that covers them."""
    a, b = node(SOON), node(SOON)
    token = a.token("ci", "publish:models/*")
    put(a, token, "/models/me/gpt/early", b"early")
    seen(b, "/models/me/gpt/early", b"early")
    b.stop()
    live = published_and_removed(a, token, {f"/models/me/gpt/{i}": os.urandom(30_000) for i in range(4)}) | {"/models/me/gpt/early": b"early"}
    collect(a)
    swept(a)
    put(a, token, "/models/me/gpt/late", b"late")
    b.start()
    for path, data in (live | {"/models/me/gpt/late": b"late"}).items():
        seen(b, path, data)  # it serves what it has if the log could not be read within five seconds
    b.says("cluster.restored")
    put(b, token, "/models/me/gpt/more", b"more")
    b.ctl("verify", "--deep")
    fresh(node, live | {"/models/me/gpt/late": b"late", "/models/me/gpt/more": b"more"})


def test_a_bucket_that_deletes_nothing(node, bucket):
    """It is tried again, and said meanwhile; uploads go on."""
    a = node(SOON)
    token = a.token("ci", "publish:models/*")
    live = published_and_removed(a, token, {"/models/me/gpt/x": os.urandom(2_000_000)})
    bucket.faults = [Fault("read-only", methods=("DELETE",))]
    collect(a)
    until(lambda: "does not permit" in status(a)["collection"])
    assert status(a)["condemned"] > 0
    until(lambda: any("cannot be deleted" in t["what"] for t in status(a)["trouble"]))
    put(a, token, "/models/me/gpt/y", b"y")
    bucket.faults = []
    swept(a)
    until(lambda: status(a)["collection"] == "" and not status(a)["trouble"])
    assert not keys(bucket, "blob/", "dead/")
    fresh(node, live | {"/models/me/gpt/y": b"y"})


def test_two_collections_at_once(node, bucket):
    a, b = node(SOON), node(SOON)
    token = a.token("ci", "publish:models/*")
    live = published_and_removed(a, token, {f"/models/me/gpt/{i}": os.urandom(30_000) for i in range(4)})
    until(lambda: versions(b) == versions(a))
    children = [m.start_ctl("cluster", "gc") for m in (a, b)]
    assert 0 in [c.wait(120 * SLOW) for c in children]
    until(lambda: status(b)["collection"] != "running")
    collect(b)
    swept(a)
    fresh(node, live)


def test_it_runs_by_itself(node, bucket):
    a = node('collect = "1s" collect_delay = "0s"')
    token = a.token("ci", "publish:models/*")
    live = published_and_removed(a, token, {"/models/me/gpt/x": os.urandom(2_000_000)})
    until(lambda: not keys(bucket, "blob/", "dead/"))
    a.reaches("mirrord_cluster_collected_objects_total", 2)
    fresh(node, live)


def test_what_verify_finds(node, bucket):
    a = node(SOON)
    token = a.token("ci", "publish:models/*")
    files = {"/models/me/gpt/small": os.urandom(30_000), "/models/me/gpt/large": os.urandom(2_000_000)}
    for path, data in files.items():
        put(a, token, path, data)
    clean = a.ctl_json("cluster", "verify", "--deep")
    assert clean["clean"] and clean["files"] == 2 and clean["orphans"] == 0 and clean["read_bytes"] > 2_000_000, clean
    bucket.objects["prod/pack/ab/ab00000000000001"] = (b"x" * 100, time.time())
    found = a.ctl_json("cluster", "verify")
    assert found["clean"] and (found["orphans"], found["orphan_bytes"]) == (1, 100), found
    del bucket.objects["prod/pack/ab/ab00000000000001"]  # below, keys() shall name what is used

    def findings(*more):
        got = a.ctl("--json", "cluster", "verify", *more, check=False)
        assert got.returncode == 65, got.stdout + got.stderr
        return " ".join(json.loads(got.stdout)["list"])

    blob, = keys(bucket, "blob/")
    whole = bucket.objects["prod/" + blob]
    bucket.objects["prod/" + blob] = (whole[0][:-1] + b"\\0", whole[1])
    assert a.ctl_json("cluster", "verify")["clean"], "the length is right"
    assert blob in findings("--deep")
    bucket.objects["prod/" + blob] = (whole[0][:-1], whole[1])
    assert "models/me/gpt/large" in findings() and blob in findings()
    del bucket.objects["prod/" + blob]
    assert "models/me/gpt/large" in findings()
    bucket.objects["prod/" + blob] = whole
    for prefix, text in (("idx/", "index "), ("log/0/", "does not follow"), ("pack/", "pack/")):
        key = keys(bucket, prefix)[1 if prefix == "log/0/" else 0]
        taken = bucket.objects.pop("prod/" + key)
        assert text in findings(), prefix
        bucket.objects["prod/" + key] = taken
    assert a.ctl_json("cluster", "verify")["clean"]


def test_an_object_that_is_too_short_is_not_asked_for_again_and_again(node, bucket):
    """Its range is a 416, or a part of it comes: that will not change."""
    a, b = node(SOON), node(SOON)
    token = a.token("ci", "publish:models/*")
    files = {"/models/me/gpt/large": os.urandom(2_000_000), "/models/me/gpt/small": os.urandom(30_000)}
    for path, data in files.items():
        put(a, token, path, data)
        until(lambda: b.get(path, method="HEAD").status == 200)  # noqa: B023
    named = keys(bucket, "blob/", "pack/")
    whole = {key: bucket.objects["prod/" + key] for key in named}
    for end in (-1, 1):
        for key, (raw, at) in whole.items():
            bucket.objects["prod/" + key] = (raw[:end], at)
        for more in ((), ("--deep",)):
            asked = sum(bucket.counts.get(("GET", first), 0) for first in ("blob", "pack"))
            found = a.ctl("--json", "cluster", "verify", *more, check=False)
            assert found.returncode == 65, found.stdout + found.stderr
            assert sum(bucket.counts.get(("GET", first), 0) for first in ("blob", "pack")) - asked <= 4 * len(named)
        for path, data in files.items():
            got = b.get(path)
            assert not got.whole or got.status >= 500 or got.body == data, (path, got.status)
        b.settle()  # its requests are not counted in the next turn
    for key, was in whole.items():
        bucket.objects["prod/" + key] = was
    for path, data in files.items():
        until(lambda: has(b, path, data))  # noqa: B023
    assert a.ctl_json("cluster", "verify", "--deep")["clean"]


def test_any_sequence_of_publishes_and_collections(node, bucket):
    """Three mirrors publish, delete and collect the same few contents all the time, are killed and stopped for a moment, over a bucket that
    fails now and then. At the end every version of every tree is read from an empty mirror, and nothing is missing."""
    dice = random.Random(int(os.environ.get("SEED", "1")))
    contents = [os.urandom(n) for n in (*range(10, 40_000, 1_000), *range(1_050_000, 1_060_000, 1_000))]
    nodes = [node('collect = "1s" collect_delay = "0s"') for _ in range(3)]
    token = nodes[0].token("ci", "publish:models/*")
    put(nodes[0], token, "/models/me/t0/first", b"first")
    for m in nodes:
        seen(m, "/models/me/t0/first", b"first")
    trees, start = [f"t{i}" for i in range(2)], time.monotonic()
    expected = {t: {} for t in trees}  # of the head, by the one thread that writes the tree
    expected["t0"]["first"] = b"first"
    bucket.faults = [Fault(kind, methods=("PUT", "DELETE", "GET"), p=0.01) for kind in ("500-after", "503", "cut-after", "late")]
    counts = {"done": 0, "open": 0}

    def over():
        """After half a minute, or later on a machine where less than this has happened by then."""
        enough = counts["done"] > 20 and any(k.startswith("prod/blob/") for k in bucket.deleted)
        return time.monotonic() - start > (30 if enough else 300) * SLOW

    def publish(tree, dice):
        while not over():
            m, path = dice.choice(nodes), f"d{dice.randrange(2)}/{dice.randrange(4)}"
            data = dice.choice(contents) if dice.random() < 0.6 else None
            if data is None and path not in expected[tree]:
                continue
            try:
                got = m.put(f"/models/me/{tree}/{path}", data, token=token, method="PUT" if data else "DELETE")
                status = got.status
            except OSError:
                status = 0
            if status in (200, 201, 204):
                counts["done"] += 1
                expected[tree].pop(path, None)
                if data:
                    expected[tree][path] = data
            else:  # it may have been published, or may still be
                counts["open"] += 1
                settle(tree, path, data)
            if dice.random() < 0.4:
                prune(dice.choice(nodes), tree)

    def settle(tree, path, data):
        """Publishes it until a mirror says so, and then once more, because an answer that was lost may come late."""
        for _ in range(2):
            while True:
                m = dice.choice(nodes)
                try:
                    got = m.put(f"/models/me/{tree}/{path}", data, token=token, method="PUT" if data else "DELETE")
                except OSError:
                    continue
                if got.status in (200, 201, 204) or (data is None and got.status == 404):
                    break
                time.sleep(0.05)
        expected[tree].pop(path, None)
        if data:
            expected[tree][path] = data

    def prune(m, tree):
        got = m.ctl("--json", "snapshot", "ls", "models", f"me/{tree}", check=False)
        for row in json.loads(got.stdout)[1:] if got.returncode == 0 else []:
            m.ctl("snapshot", "rm", "models", f"me/{tree}", f"v{row['seq']}", check=False)

    def read(dice):
        while not over():
            got = dice.choice(nodes).get(f"/models/me/{dice.choice(trees)}/d{dice.randrange(2)}/{dice.randrange(4)}")
            assert got.status != 200 or not got.whole or got.body in contents

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        work = [pool.submit(publish, t, random.Random(dice.random())) for t in trees] + [pool.submit(read, random.Random(7))]
        while not over() and not any(w.done() and w.exception() for w in work):
            m = dice.choice(nodes)
            if dice.random() < 0.5:
                m.kill()
                m.start()
            else:
                os.kill(m.child.pid, signal.SIGSTOP)
                time.sleep(dice.random() * 3)
                os.kill(m.child.pid, signal.SIGCONT)
            time.sleep(dice.random() * 4)
        for w in work:
            w.result()
    bucket.faults = []
    print(counts, {k: len(keys(bucket, k)) for k in PREFIXES}, sum(k.startswith("prod/blob/") for k in bucket.deleted), "blobs deleted")
    swept(nodes[0])
    live = {f"/models/me/{t}/{path}": data for t in trees for path, data in expected[t].items()}
    fresh(node, live)
    assert counts["done"] > 20 and any(k.startswith("prod/blob/") for k in bucket.deleted), "\n".join(m.log() for m in nodes)


def test_a_mirror_that_woke_up_reads_what_was_moved(node, bucket):
    """Its places name a pack that was copied and deleted while it slept. It reads the log before it says that the file is gone."""
    a, b = node(SOON), node(SOON, poll="3s")
    token = a.token("ci", "publish:models/*")
    files = {f"/models/me/gpt/{i}": os.urandom(30_000) for i in range(6)}
    for path, data in files.items():
        put(a, token, path, data)
    names = list(files)
    until(lambda: b.get(names[-1], method="HEAD").status == 200)
    os.kill(b.child.pid, signal.SIGSTOP)
    for path in names[1:]:
        remove(a, token, path)
    forget_old(a)
    for i in range(34):  # so many small indexes are merged, with their packs
        put(a, token, "/models/me/gpt/other", b"%d" % i)
    assert collect(a)["copied_bytes"] > 30_000
    swept(a)
    os.kill(b.child.pid, signal.SIGCONT)
    found(b, names[0], files[names[0]])


def test_content_is_published_again_just_before_it_is_condemned(node, bucket):
    """The mark is over and the list of the dead is on its way. The publish relies on what is there, and gets into the log first."""
    a, b = node(SOON), node(SOON)
    token = a.token("ci", "publish:models/*")
    gone = {f"/models/me/gpt/{i}": os.urandom(30_000 if i else 2_000_000) for i in range(4)}
    live = published_and_removed(a, token, gone)
    until(lambda: versions(b) == versions(a))
    before = set(keys(bucket, "blob/"))
    bucket.faults = [Fault("slow", "dead/", ("PUT",), delay=4)]
    child = a.start_ctl("cluster", "gc")
    until(lambda: bucket.faults[0].seen)
    for path, data in gone.items():
        put(b, token, path, data)
    in_time = not keys(bucket, "dead/")
    bucket.faults = []
    assert child.wait(60 * SLOW) == 0
    swept(a)
    if in_time:
        assert set(keys(bucket, "blob/")) == before, "nothing was uploaded anew"
    fresh(node, live | gone)
