"""What no version names any more is deleted from a cluster's bucket, and nothing else is, whatever happens in between."""
import os
import signal
import time

import pytest

from harness.bucket import Fault
from harness.mirrord import until
from system.test_cluster import bucket, has, node, seen  # noqa: F401  (fixtures)

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


def swept(bucket):
    """Waits until nothing is condemned any more."""
    until(lambda: not keys(bucket, "dead/"))


def fresh(node, files, **kw):
    """A mirror with an empty state_dir reads all of it."""
    m = node(SOON, **kw)
    for path, data in files.items():
        got = m.get(path)
        assert (got.status, got.body) == (200, data), (path, got.status, got.body[:200])
    m.ctl("verify", "--deep")
    return m


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
    swept(bucket)
    assert not keys(bucket, "blob/")
    assert sum(len(body) for _, body in bucket.under("pack/")) < 5_000
    files = {"/models/me/gpt/stays": b"stays"}
    fresh(node, files)
    # What was collected can be published again.
    put(a, token, "/models/me/gpt/small", small)
    put(a, token, "/models/me/gpt/large", large)
    files |= {"/models/me/gpt/small": small, "/models/me/gpt/large": large}
    fresh(node, files)
