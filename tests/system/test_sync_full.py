"""A disk that is really full in the middle of a sync: the run says so, the old snapshot stays, room lets the next one go on."""
import json
import os

import pytest

from harness.mirrord import until
from harness.tree_origin import TreeOrigin
from system.test_full_disk import small_disk  # noqa: F401, a fixture
from system.test_sync import CONFIG, FAST, check, run

MIB = 1 << 20
OLD = {f"old/{i}": os.urandom(1000 * i + 1) for i in range(20)}
STORAGE = '\nstorage { quota = "1g" reserve = "1m" }'


def fill_up(disk, leave=0):
    with open(disk / "ballast", "wb", buffering=0) as f:
        try:
            while f.write(bytes(4096)):
                pass
        except OSError:
            pass
        f.truncate(max(0, f.tell() - leave))


def when_there_is_room(m):
    """The store looks at the disk every now and then, and RocksDB gets over its error by a thread of its own."""
    runs = []

    def published():
        done = m.ctl("--json", "sync", "run", "x", "--wait", check=False)
        assert done.returncode == 0 or (done.returncode == 69 and "no space left on this machine" in done.stdout), done
        runs.append(json.loads(done.stdout))
        return done.returncode == 0
    until(published)
    return runs[-1]


@pytest.fixture
def o():
    with TreeOrigin(OLD) as origin:
        yield origin


@pytest.fixture
def m(mirrord, o, small_disk):  # noqa: F811
    m = mirrord(CONFIG.format(o.url, FAST + " parallel = 2") + STORAGE, state=small_disk / "state")
    run(m)
    m.old = o.tree()
    m.disk = small_disk
    return m


@pytest.mark.parametrize("leave", [0, 12 * MIB])
def test_full_while_it_fetches(m, o, leave):
    for i in range(8):
        o.put(f"big/{i}", os.urandom(3 * MIB))
    fill_up(m.disk, leave)
    failed = run(m, rc=69)
    assert failed["outcome"] == "failed" and any(w in failed["why"] for w in ("No space", "fit", "space")), failed
    check(m, m.old)
    (m.disk / "ballast").unlink()
    o.forget()
    assert when_there_is_room(m)["outcome"] == "published"
    if leave:
        assert len(o.sent) < 8  # what was stored before it was full
    check(m, o.tree())
    m.ctl("verify", "--deep")


def test_full_while_nodes_are_written(m, o):
    """Small files and rows: RocksDB's own writes fail. Not a byte of it is believed, and it recovers by itself."""
    for i in range(3000):
        o.put(f"many/{i:04}/{'x' * 100}", os.urandom(200))
    fill_up(m.disk, 256 << 10)
    failed = run(m, rc=69)
    assert failed["outcome"] == "failed" and failed["why"], failed
    check(m, m.old)
    (m.disk / "ballast").unlink()
    done = when_there_is_room(m)
    assert done["outcome"] == "published" and done["listed"] == 3020
    assert m.get(f"/x/many/2999/{'x' * 100}").status == 200
    m.ctl("verify", "--deep")


def test_killed_while_full(m, o):
    for i in range(8):
        o.put(f"big/{i}", os.urandom(3 * MIB))
    fill_up(m.disk, 8 * MIB)
    run(m, rc=69)
    m.kill()
    (m.disk / "ballast").unlink()
    m.start()
    check(m, m.old)
    assert run(m)["outcome"] == "published"
    check(m, o.tree())
    m.ctl("verify", "--deep")
