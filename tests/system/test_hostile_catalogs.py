"""Catalogs that the mirror makes of a Hub's listings: what they hold counts as the memory of the client that asked for them. Bodies:
test_hostile_memory.py."""
import json
import threading

import pytest

from harness.crowd import Client
from harness.mirrord import SLOW, until

GREEDY, MODEST = "127.0.0.2", "127.0.0.3"
MEMORY = 16 << 20
CATALOG = 800 << 10  # that one of the listings below comes to, at least


@pytest.fixture
def hub(hub):
    """Its bucket "large" has 900 files, each with a path of 900 letters, whatever beginning is asked for."""
    files = [{"type": "file", "path": f"{i:05}{'x' * 900}", "size": 4, "xetHash": f"{i:064x}"} for i in range(900)]
    hub.listing = json.dumps(files).encode()
    hub.bucket("org/large", {})
    hub.bucket("org/small", {"a.txt": b"this", "d/b.txt": b"that"})
    hub.cursor = threading.Event()
    hub.order(r"^/api/buckets/org/large/tree/.*cursor", hub.cursor.wait, times=1000)
    yield hub
    hub.cursor.set()


def list_large(hub, parts):
    more = {"Link": f'<{hub.url}/api/buckets/org/large/tree/x?recursive=true&cursor=1>; rel="next"'} if parts > 1 else {}
    hub.order(r"^/api/buckets/org/large/tree/", (200, {"Content-Type": "application/json", **more}, hub.listing), times=1000)


@pytest.fixture
def m(mirrord, hub):
    m = mirrord(hub.config(more='stall = "1h"') + f'\nrepo "models" {{ protocol = "hosted" }}\nhttp {{ body_memory = "{MEMORY}" }}')
    m.api = m.token("ci", "publish:models/me/*")
    return m


def paths_info(i):
    """Of so many paths that the whole listing is needed, which is another one for each i."""
    return {"method": "POST", "body": json.dumps({"paths": [f"p{i}/{x}" for x in "abcde"]}), "headers": {"Content-Type": "application/json"}}


def held(m):
    return m.metric("mirrord_http_body_memory_bytes")


def modest_is_served(m):
    modest = Client(m, MODEST)
    assert modest.ask("/hf/buckets/org/small/resolve/d/b.txt") == (200, b"that")
    paths = json.dumps({"paths": ["a.txt", "d/b.txt"]})
    status, body = modest.ask("/hf/api/buckets/org/small/paths-info", "POST", paths, {"Content-Type": "application/json"})
    assert status == 200 and len(json.loads(body)) == 2
    assert Client(m, MODEST, m.api).ask("/models/me/gpt/b", "PUT", bytes(1 << 20))[0] in (200, 201)


def test_catalogs_that_are_kept(m, hub):
    """They wait for whoever asks next, and give way to whatever needs the room."""
    list_large(hub, 1)
    greedy = Client(m, GREEDY)
    for _ in range(2):  # what comes anew from the Hub is kept from the second time on
        for i in range(16):
            assert greedy.ask(f"/hf/buckets/org/large/resolve/p{i}", "HEAD")[0] == 404
            assert held(m) <= MEMORY + 2 * CATALOG
        m.settle()
    assert held(m) >= CATALOG
    modest_is_served(m)
    until(lambda: held(m) <= MEMORY)


def test_catalogs_that_are_being_made(m, hub):
    """Sixty, of which the Hub has given the first part each. The client that asked for them hears 503, others are served."""
    list_large(hub, 2)
    before = m.peak_bytes()
    greedy = Client(m, GREEDY)
    for i in range(30):
        greedy.begin(f"/hf/api/buckets/org/large/xet/p{i}/v1/reconstructions/{i:064x}")  # which needs the whole
        greedy.begin(f"/hf/api/buckets/org/large/paths-info", **paths_info(i))
    until(lambda: len(greedy.done) >= 40)
    assert {status for _, status in greedy.done} <= {503, 404}
    assert sum(status == 503 for _, status in greedy.done) >= 40
    modest_is_served(m)
    assert held(m) <= 2 * MEMORY
    assert m.peak_bytes() - before < 5 * MEMORY or SLOW > 1
    hub.cursor.set()
    greedy.join()
    modest_is_served(m)
    until(lambda: held(m) <= MEMORY)


def test_a_catalog_that_others_wait_for(m, hub):
    """It is on the account of the client that asked first, and of the next one when that client may hold no more."""
    list_large(hub, 2)
    greedy, modest = Client(m, GREEDY), Client(m, MODEST)
    greedy.begin("/hf/api/buckets/org/large/paths-info", **paths_info(0))
    until(lambda: any("cursor" in c[1] for c in hub.calls))
    modest.begin("/hf/api/buckets/org/large/paths-info", **paths_info(0))
    for i in range(1, 30):
        greedy.begin("/hf/api/buckets/org/large/paths-info", **paths_info(i))
    until(lambda: len(greedy.done) >= 20)
    hub.cursor.set()
    modest.join()
    assert [status for _, status in modest.done] == [200]
    greedy.join()
