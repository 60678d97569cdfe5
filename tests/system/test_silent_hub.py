"""A Hub that takes requests and answers none, or is gone: what is warm is served and says that it is old, what is cold fails with its
reason, neither after a time at which clients have given up.

`stall = 1h` and the Hub's silence, which ends only after a reply was seen, stand in for a clock.
"""
import concurrent.futures
import time

import pytest

from harness.hub import Big, read
from harness.mirrord import until

FILES = {"README.md": b"# demo\n", "config.json": b"{}", "weights.bin": Big(300000)}
READER = {"Authorization": "Bearer hf_reader"}
STALE = "mirrord; hit; fwd=stale; detail=origin-trouble"
PATIENT, BRIEF = "patience = 1h", "patience = 1500ms"  # for a Hub that speaks on a slow machine; for one that is silent
OLD = PATIENT + " stall = 1h rule '' { ttl = 1s stale_while = 0s neg_ttl = 0s }"


@pytest.fixture
def demo(hub):
    hub.users["hf_reader"] = "reader"
    hub.repo("org/other", files={"config.json": b"{}"})
    hub.repo("meta/gated", files=FILES, gated=True, readers={"hf_reader"})
    return hub.repo("org/demo", files=dict(FILES, **{"cold.bin": Big(5 << 20, 2)}))


def warm(m, demo):
    """(path, headers) of all that is known from now on."""
    paths = [f"/hf/org/demo/resolve/{rev}/{p}" for rev in ("main", demo.sha) for p in FILES]
    paths += ["/hf/api/models/org/demo", "/hf/api/models/org/demo/revision/main", "/hf/api/models/org/demo/tree/main?recursive=true"]
    asks = [(path, {}) for path in paths] + [(f"/hf/meta/gated/resolve/main/{p}", READER) for p in FILES]
    for path, headers in asks:
        assert m.get(path, headers=headers).status == 200, path
    m.settle()
    return asks


def fall_silent(m, hub, again):
    """Nobody has waited for this Hub yet; what was fresh is not."""
    m.config = m.config.replace(PATIENT, BRIEF)
    if again:
        m.stop()
        m.start()
    else:
        m.reload()
    time.sleep(2)
    hub.voice.clear()


@pytest.mark.parametrize("again", [False, True], ids=["running", "restarted"])
def test_what_is_warm_is_served(mirrord, hub, demo, again):
    m = mirrord(hub.config(more=OLD))
    asks = warm(m, demo)
    fall_silent(m, hub, again)
    for path, headers in asks:
        got = m.get(path, headers=headers)
        assert got.status == 200 and not hub.voice.is_set(), path
        if demo.sha not in path:
            assert got["cache-status"] == STALE and got["x-hf-warning"], path
        assert m.get(path, headers=headers, head=True).status == 200
    hub.voice.set()
    until(lambda: m.get("/hf/api/models/org/demo")["x-hf-warning"] is None)


def test_a_right_is_not_made_longer(mirrord, hub, demo):
    """Who has none gets none of a silent Hub, and a right ends where the Hub's word comes late."""
    m = mirrord(hub.config(more=OLD))
    path = "/hf/meta/gated/resolve/main/config.json"
    warm(m, demo)
    fall_silent(m, hub, False)
    assert m.get(path, headers=READER).status == 200
    for headers in ({}, {"Authorization": "Bearer hf_stranger"}):
        got = m.get(path, headers=headers)
        assert got.status in (401, 403, 502, 503, 504) and got.body != FILES["config.json"], headers
    hub.repos["models", "meta/gated"].readers = set()
    hub.voice.set()
    until(lambda: m.get(path, headers=READER).status == 403)


@pytest.mark.parametrize("gone", [False, True], ids=["silent", "gone"])
def test_what_is_cold_fails_with_its_reason(mirrord, hub, demo, gone):
    m = mirrord("threads = 4\n" + hub.config(more=OLD))
    warm(m, demo)
    fall_silent(m, hub, gone)  # connections that are open would go on
    if gone:
        hub.down()
    assert m.get("/hf/api/models/org/demo").status == 200
    for path in ("/hf/org/demo/resolve/main/cold.bin", "/hf/api/models/org/other", "/hf/org/other/resolve/main/config.json",
                 "/hf/datasets/org/none/resolve/main/x") * 3:
        got = m.get(path)
        assert got.status in ((502,) if gone else (503, 504)), (path, got.status, got.body)
        assert "Hub" in got["x-error-message"] and got["cache-status"] == "mirrord; fwd=uri-miss; detail=origin-trouble"
        assert ("cannot connect" if gone else "not answered") in got["x-error-message"]
    if gone:
        hub.up()
    hub.voice.set()
    until(lambda: m.get("/hf/org/other/resolve/main/config.json").status == 200)
    until(lambda: m.get("/hf/org/demo/resolve/main/cold.bin").body == read(Big(5 << 20, 2)))


def test_who_waits_already_hears_that_the_hub_is_silent(mirrord, hub, demo):
    """The first to ask for what is cold cannot know. What others find out is said to them, too."""
    m = mirrord("threads = 4\n" + hub.config(more=OLD))
    warm(m, demo)
    fall_silent(m, hub, False)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(m.get, "/hf/org/other/resolve/main/config.json")
        until(lambda: any("org/other" in str(c) for c in hub.calls))
        assert m.get("/hf/api/models/org/demo")["cache-status"] == STALE  # it is in doubt now
        until(lambda: m.get("/hf/org/none/resolve/main/x").status == 504)
        got = first.result()
    hub.voice.set()
    assert got.status == 504 and "not answered" in got["x-error-message"], got


def test_a_silent_hub_is_asked_by_one(mirrord, hub, demo):
    """All loops know of it: a hundred clients are answered, and few requests go out."""
    m = mirrord("threads = 4\n" + hub.config(more=OLD))
    warm(m, demo)
    fall_silent(m, hub, False)
    asked = len(hub.calls)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        paths = [f"/hf/org/cold-{i}/resolve/main/x" for i in range(50)] + ["/hf/api/models/org/demo"] * 50
        assert m.get("/hf/api/models/org/demo").status == 200
        assert m.get("/hf/org/cold/resolve/main/x").status == 504
        got = list(pool.map(m.get, paths))
    assert [g.status for g in got] == [504] * 50 + [200] * 50
    assert len(hub.calls) - asked < 30
    hub.voice.set()
