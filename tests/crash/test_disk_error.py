"""A disk that fails a call: what is here is served, /readyz says why nothing is written, and no hand is needed afterwards.

RocksDB writes nothing more after some errors until it is opened anew: mirrord ends then, when the disk is well again, and
whoever started it starts it again. failer.c makes the calls fail.
"""
import json
import os
import re

import pytest

from harness.mirrord import BUILD, SLOW, until
from system.test_cluster import bucket, has, node  # noqa: F401  (fixtures)

pytestmark = pytest.mark.skipif(SLOW > 1, reason="a sanitizer's runtime must come first")
FAILER = BUILD / "crash" / "failer.so"
HOSTED = 'storage {{ quota = "8g" reserve = "16m" restart = "{restart}" {more} }} repo "models" {{ protocol = "hosted" }}'


class Disk:
    def __init__(self, m):
        self.m, self.order = m, m.folder / "fail"

    def fails(self, order):
        """Comes into force whole."""
        draft = self.order.with_suffix(".draft")
        draft.write_text(order)
        draft.rename(self.order)

    def failed(self):
        count = self.order.with_suffix(".count")
        return count.stat().st_size if count.exists() else 0

    def is_well(self):
        self.order.unlink(missing_ok=True)


@pytest.fixture
def disk(mirrord):
    """Of a mirrord that is up, with one file."""
    def start(restart, more=""):
        m = mirrord(HOSTED.format(restart=restart, more=more))
        m.stop()
        d = Disk(m)
        m.env = {"LD_PRELOAD": str(FAILER), "FAIL_FILE": str(d.order)}
        m.start()
        d.token = m.token("ci", "publish:models/*")
        d.kept = os.urandom(3000)
        assert m.put("/models/me/x/kept", d.kept, token=d.token).status == 201
        return d
    return start


def ends_by_itself(m):
    child, m.child = m.child, None
    assert child.wait(120) == 74
    assert "the store cannot be written until it is opened again; restart mirrord" in m.log().splitlines()[-1]


@pytest.mark.parametrize("order", ["5 1 write /meta/", "5 1 sync /meta/"])
def test_one_failed_call_needs_no_hand(disk, order):
    d = disk("1s")
    m = d.m
    d.fails(order)
    assert m.put("/models/me/x/lost", b"lost", token=d.token).status == 500
    ends_by_itself(m)
    m.start()
    assert m.get("/models/me/x/kept").body == d.kept
    assert m.put("/models/me/x/new", b"new", token=d.token).status == 201
    assert m.get("/models/me/x/new").body == b"new"
    assert m.ctl("verify").returncode == 0


def test_a_disk_that_stays_broken_is_read(disk):
    """No restart mends it: it would only take away what can be read."""
    d = disk("1s")
    m = d.m
    d.fails("5 on any /meta/")
    assert m.put("/models/me/x/lost", b"lost", token=d.token).status == 500
    ready = m.get("/readyz")
    assert ready.status == 503 and b"Input/output error" in ready.body
    assert m.metric("mirrord_store_healthy") == 0
    status = m.ctl("status", check=False)
    assert status.returncode == 1 and re.match(r"TROUBLE the store can no longer be written; only cached objects are served: metadata: .*Input/output error", status.stdout), status
    shown = m.get("/-/status.json").body
    assert b'"kind":"store"' in shown and b"metadata" not in shown, "paths of the machine are for its operator"
    until(lambda: d.failed() >= 6)  # it tries each second whether the disk takes something
    assert m.alive() and m.get("/models/me/x/kept").body == d.kept
    d.is_well()
    ends_by_itself(m)
    m.start()
    assert m.get("/models/me/x/kept").body == d.kept
    assert m.put("/models/me/x/new", b"new", token=d.token).status == 201


def test_never_means_never(disk):
    d = disk("0")
    m = d.m
    d.fails("5 1 write /meta/")
    assert m.put("/models/me/x/lost", b"lost", token=d.token).status == 500
    until(lambda: m.get("/readyz").status == 503)
    assert m.get("/models/me/x/kept").body == d.kept
    assert m.put("/models/me/x/new", b"new", token=d.token).status == 500
    m.stop()
    m.start()
    assert m.put("/models/me/x/new", b"new", token=d.token).status == 201


def test_what_was_not_written_is_nobodys_share(disk):
    """A session that could not be opened is none of its client's, nor are bytes of a file that could not be kept."""
    d = disk("0", 'client_uploads = 2 client_upload_bytes = "1m"')
    m, uploads = d.m, "/models/me/x/-/uploads"
    place = f"{uploads}/{json.loads(m.put(uploads, b'', token=d.token, method='POST').body)['upload']}"
    d.fails("5 1 write /meta/")
    statuses = [m.put(uploads, b"", token=d.token, method="POST").status for _ in range(3)]
    assert statuses == [500] * 3, "not 429: there is one"
    statuses = [m.put(f"{place}/f{i}", bytes([i]) * (30 << 10), token=d.token).status for i in range(40)]
    assert statuses == [500] * 40, "not 507: there are none"


def test_an_error_in_the_background_is_seen_at_once(disk):
    """Rows go to their tables behind the writers' backs: nobody needs to write for /readyz to say so."""
    d = disk("0")
    m = d.m
    d.fails("24 1 open .sst")  # EMFILE
    for i in range(2000):
        if not d.order.exists():
            break
        m.put(f"/models/me/x/{i}", os.urandom(30000), token=d.token)
    assert not d.order.exists(), "no table was ever written"
    until(lambda: m.get("/readyz").status == 503)
    assert b"Too many open files" in m.get("/readyz").body
    assert m.get("/models/me/x/kept").body == d.kept


@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_a_file_that_the_disk_cannot_read_comes_from_the_bucket(node, bucket, size):  # noqa: F811
    """Of a cluster: the request that meets it is cut off, and the next ones are answered."""
    m = node()
    m.stop()
    d = Disk(m)
    m.env = {"LD_PRELOAD": str(FAILER), "FAIL_FILE": str(d.order)}
    m.start()
    token, data = m.token("ci", "publish:models/*"), os.urandom(size)
    assert m.put("/models/me/x/kept", data, token=token).status == 201
    d.fails("5 on read /blobs/")
    got = m.get("/models/me/x/kept")
    assert got.rc != 0 or got.status >= 500
    m.says("store.damaged")
    d.is_well()
    assert has(m, "/models/me/x/kept", data)
    assert ("GET", "pack") in bucket.counts or ("GET", "blob") in bucket.counts
    m.ctl("verify", "--deep")
