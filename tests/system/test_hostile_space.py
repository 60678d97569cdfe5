"""Announced sizes take no room: what others keep is put out by bytes that have come, and by nothing else."""
import json
import socket

import pytest

from harness.crowd import Client
from harness.image import Image
from harness.mirrord import until
from system.test_hosted_hub import Hub, below, sha
from system.test_hosted_xet import chunk, shard
from system.test_hosted_xet import store as xet_store

MIB = 1 << 20
KIB = 1 << 10
GREEDY, MODEST = "127.0.0.2", "127.0.0.3"


@pytest.fixture
def small(mirrord, origin):
    """A cache of 64 MiB, of which 48 are in use."""
    m = mirrord(f"""storage {{ quota = "64m" reserve = "16m" client_uploads = 3 }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" stall = "1h" rule '.' {{ class = immutable }} }}
        repo "models" {{ protocol = "hosted" }}""")
    m.origin = origin
    m.kept = [origin.put(f"/{i}", size=8 * MIB, seed=i + 1) for i in range(6)]
    for i in range(6):
        assert m.get(f"/data/{i}").body == origin.bytes_of(f"/{i}")
    m.settle()
    return m


def nothing_was_put_out(m):
    assert m.metric("mirrord_cache_evicted_bytes_total") == 0
    for i, thing in enumerate(m.kept):
        assert m.get(f"/data/{i}").body == m.origin.bytes_of(f"/{i}") and thing.bytes == 8 * MIB


def test_a_byte_of_a_large_object_costs_no_more_room(small, wire):
    """1.8 GB in a cache of 2 GB: here 58 MiB in 64."""
    thing = small.origin.put("/large", size=58 * MIB)
    got = small.get("/data/large", wire, headers={"Range": "bytes=0-0"})
    assert got.status == 206 and got.body == small.origin.bytes_of("/large", 0, 1)
    assert thing.bytes <= 128 * KIB
    nothing_was_put_out(small)


def test_an_announced_upload_takes_no_room(small):
    token = small.token("ci", "publish:models/*")
    with socket.create_connection(("127.0.0.1", small.port)) as s:
        s.sendall(f"PUT /models/me/x/f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                  f"Content-Length: {58 * MIB}\r\n\r\nx".encode())
        until(lambda: small.metric("mirrord_cache_staged_bytes") > 0)
        assert small.put("/models/me/y/g", b"another", token=token).status == 201
        nothing_was_put_out(small)


def test_what_is_larger_than_the_quota_is_read_in_parts(small, wire):
    """A range of it was 507."""
    size = 4 << 30
    small.origin.put("/huge", size=size)
    for first in (0, 3 << 30, size - 300 * KIB):
        got = small.get("/data/huge", wire, headers={"Range": f"bytes={first}-{first + 200 * KIB - 1}"})
        assert got.status == 206 and got.body == small.origin.bytes_of("/huge", first, first + 200 * KIB)
    whole = small.get("/data/huge", wire)
    assert whole.status == 507 and b"than the quota" in whole.body
    nothing_was_put_out(small)


def test_room_is_made_as_bytes_come(small):
    assert small.get("/data/0").whole
    small.origin.put("/more", size=30 * MIB)
    assert small.get("/data/more").body == small.origin.bytes_of("/more")
    assert small.metric("mirrord_cache_evicted_bytes_total") > 0
    token = small.token("ci", "publish:models/*")
    data = small.origin.bytes_of("/more", 0, 20 * MIB)
    assert small.put("/models/me/x/f", data, token=token).status == 201
    assert small.get("/models/me/x/f").body == data
    assert small.ctl("verify").returncode == 0


def test_one_token_has_its_share_of_upload_sessions(small):
    greedy, modest = small.token("greedy", "publish:models/*"), small.token("modest", "publish:models/*")

    def opened(token):
        return small.put("/models/me/x/-/uploads", b"", token=token, method="POST")
    got = [opened(greedy) for _ in range(5)]
    assert [g.status for g in got] == [201, 201, 201, 429, 429]
    assert b"client_uploads" in got[4].body
    assert opened(modest).status == 201
    place = json.loads(got[0].body)["upload"]
    assert small.put(f"/models/me/x/-/uploads/{place}", b"", token=greedy, method="DELETE").status == 204
    assert opened(greedy).status == 201


def test_offers_and_layers_count_as_sessions(small):
    """They did not: one token had as many as it liked. What is finished counts no more."""
    hub = Hub(small)
    assert hub.create().status == 200
    data = [b"%d" % i * 100 for i in range(4)]
    offers = [hub.batch((sha(d), len(d))) for d in data]
    assert [got.status for got, _ in offers] == [200, 200, 200, 429]
    assert b"client_uploads" in offers[3][0].body
    layers = Image(small, name="models/me/image", token=hub.token)
    assert layers.ask("POST", "blobs/uploads/", b"").status == 429
    other = Image(small, name="models/me/image", token=small.token("other", "publish:models/me/*"))
    other.begin()
    up = offers[0][1]["objects"][0]["actions"]["upload"]
    assert small.put(below(up["href"]), data[0]).status == 200  # the offer is finished
    layers.push_blob(b"a layer")
    layers.push_blob(b"another")  # so was the first
    assert hub.batch((sha(data[3]), len(data[3])))[0].status == 200
    assert hub.batch((sha(b"x"), 1))[0].status == 429


def test_one_token_has_its_share_of_bytes_in_uploads(mirrord):
    """4 MiB: files of a session, whole or not, and layers that are not whole; what ends gives them back."""
    m = mirrord("""storage { quota = "64m" reserve = "16m" client_upload_bytes = "4m" }
        repo "models" { protocol = "hosted" }""")
    greedy, modest = m.token("greedy", "publish:models/*"), m.token("modest", "publish:models/*")
    data = bytes(range(256)) * (3 * MIB // 256)

    def opened(token):
        got = m.put("/models/me/x/-/uploads", b"", token=token, method="POST")
        return f"/models/me/x/-/uploads/{json.loads(got.body)['upload']}"
    first, second, others = opened(greedy), opened(greedy), opened(modest)
    for _ in range(3):  # again, and again: it is counted once
        assert m.put(f"{first}/a", data, token=greedy).status == 201
    refused = m.put(f"{second}/b", data, token=greedy)
    assert refused.status == 507 and b"client_upload_bytes" in refused.body
    layers = Image(m, name="models/me/image", token=greedy)
    layer = layers.begin()
    assert layers.ask("PATCH", layer, data).status == 507
    assert m.put(f"{others}/c", data, token=modest).status == 201
    assert m.metric("mirrord_cache_evicted_bytes_total") == 0
    for place in (first, second, layer):
        assert m.put(place, b"", token=greedy, method="DELETE").status == 204
    layers.push_blob(data)
    layers.push_blob(data[1:])
    layers.push_blob(2 * data)  # one object is bounded by the quota, as long as it is all that is under way
    assert m.ctl("verify").returncode == 0


def test_without_a_setting_the_share_is_a_quarter(small):
    token = small.token("ci", "publish:models/*")
    small.origin.put("/f", size=12 * MIB)
    data = small.origin.bytes_of("/f")

    def opened(tree):
        got = small.put(f"/models/me/{tree}/-/uploads", b"", token=token, method="POST")
        return f"/models/me/{tree}/-/uploads/{json.loads(got.body)['upload']}"
    first, second = opened("x"), opened("y")
    assert small.put(f"{first}/a", data, token=token).status == 201
    assert small.put(f"{second}/b", data, token=token).status == 507
    assert small.put(f"{first}/commit", b"", token=token, method="POST").status == 201
    assert small.put(f"{second}/b", data, token=token).status == 201


# --- one client's share of the store ----------------------------------------------------------------------------------

def test_one_fetch_does_not_empty_the_store(small):
    """58 MiB of 64 put out all 48 that were there."""
    small.origin.put("/large", size=58 * MIB)
    status, body = Client(small, GREEDY).ask("/data/large")
    assert status == 507 and b"client_store" in body and b"storage.quota" in body
    nothing_was_put_out(small)


def test_a_clients_fetches_put_out_their_share(small):
    """Half of the quota; then what the client brought itself, and others are served as ever."""
    for i in range(24):
        small.origin.put(f"/g{i}", size=8 * MIB, seed=100 + i)
    greedy, modest = Client(small, GREEDY), Client(small, MODEST)
    for i in range(24):
        assert greedy.ask(f"/data/g{i}")[0] == 200, i
        small.settle()  # what is not sealed yet cannot be put out
    asked = small.origin.requests
    kept = [i for i in range(6) if small.get(f"/data/{i}", headers={"Cache-Control": "only-if-cached"}).status == 200]
    assert len(kept) >= 2 and small.origin.requests == asked
    assert modest.ask("/data/g0")[0] == 200  # its own share is whole
    assert small.ctl("verify").returncode == 0


def test_what_is_not_sealed_yet_is_waited_for(small):
    """None of the client's fetches is sealed until one has no room: it heard 507, for room that would be its own in a moment."""
    for i in range(24):
        small.origin.put(f"/g{i}", size=8 * MIB, seed=100 + i, hold_at=8 * MIB - 1)
    greedy, open_, waits = Client(small, GREEDY), [], 0
    for i in range(24):
        greedy.begin(f"/data/g{i}")
        open_.append(small.origin.things[f"/g{i}"])
        until(lambda: open_[-1].bytes >= 8 * MIB - 1 or small.log().count("fetch.held") > waits or any(s == 507 for _, s in greedy.done))
        if small.log().count("fetch.held") > waits:
            waits = small.log().count("fetch.held")
            open_.pop(0).go.set()
    for thing in open_:
        thing.go.set()
    greedy.join()
    assert greedy.lost == []
    assert sorted(greedy.done) == sorted((f"/data/g{i}", 200) for i in range(24))
    assert waits > 0
    kept = [i for i in range(6) if small.get(f"/data/{i}", headers={"Cache-Control": "only-if-cached"}).status == 200]
    assert len(kept) >= 2


@pytest.fixture
def lone(mirrord, origin):
    """An empty cache of 64 MiB, and two objects that it does not hold beside each other."""
    m = mirrord(f"""storage {{ quota = "64m" reserve = "16m" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" stall = "1h" rule '.' {{ class = immutable }} }}""")
    m.client = Client(m, GREEDY)
    return m


def test_a_lone_client_waits_for_its_own_fetch(lone, origin):
    origin.put("/a", size=40 * MIB, seed=1, hold_at=40 * MIB - 1)
    origin.put("/b", size=40 * MIB, seed=2)
    lone.client.begin("/data/a")
    until(lambda: origin.things["/a"].bytes >= 40 * MIB - 1)
    lone.client.begin("/data/b")
    until(lambda: "fetch.held" in lone.log() or lone.client.done)
    origin.things["/a"].go.set()
    lone.client.join()
    assert sorted(lone.client.done) == [("/data/a", 200), ("/data/b", 200)]


def test_of_two_that_need_the_same_room_one_goes_on(lone, origin):
    """Both are under way, neither has the room to end: the one that began later waits."""
    for name, seed in (("/a", 1), ("/b", 2), ("/c", 3)):
        origin.put(name, size=40 * MIB, seed=seed)
        lone.client.begin(f"/data{name}")
    lone.client.join()
    assert sorted(lone.client.done) == [("/data/a", 200), ("/data/b", 200), ("/data/c", 200)]


def test_ranges_of_what_cannot_be_kept_have_a_share(small):
    """A tenth of the quota was each object's: ten of them put out 48 MiB."""
    greedy, statuses = Client(small, GREEDY), []
    for i in range(10):
        small.origin.put(f"/huge{i}", size=4 << 30, seed=i)
        statuses.append(greedy.ask(f"/data/huge{i}", headers={"Range": f"bytes=0-{6 * MIB - 1}"})[0])
    assert statuses[0] == 206 and set(statuses) <= {206, 507}
    nothing_was_put_out(small)


def test_who_waits_with_a_greedy_client_is_served(mirrord, origin):
    """The fetch counts for the first who asked; when that one has had its share, it is begun anew for the next."""
    m = mirrord(f"""storage {{ quota = "64m" reserve = "16m" }} cache {{ grace = "10m" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" connections = 1 stall = "1h" rule '.' {{ class = immutable }} }}""")
    for i in range(6):
        origin.put(f"/{i}", size=8 * MIB, seed=i + 1)
        assert m.get(f"/data/{i}").whole
    m.settle()
    for name in ("/huge0", "/huge1"):
        origin.put(name, size=4 << 30)
    origin.put("/held", size=1000, hold_at=0)
    greedy, modest, part = Client(m, GREEDY), Client(m, MODEST), {"Range": f"bytes=0-{6 * MIB - 1}"}
    assert greedy.ask("/data/huge0", headers=part)[0] == 206
    asked = origin.requests
    greedy.begin("/data/held")
    until(lambda: origin.requests > asked and m.metric("mirrord_cache_waiting") == 0)  # its head is here: the one connection is taken
    greedy.begin("/data/huge1", headers=part)
    until(lambda: m.metric("mirrord_cache_waiting") == 1)
    modest.begin("/data/huge1", headers=part)
    until(lambda: m.metric("mirrord_cache_waiting") == 2)
    origin.things["/held"].go.set()
    greedy.join()
    modest.join()
    assert ("/data/huge1", 507) in greedy.done
    assert modest.done == [("/data/huge1", 206)]


def test_a_lone_researcher_is_served(mirrord, origin):
    """Four times the quota through a small mirror, with objects of almost all of it."""
    m = mirrord(f"""storage {{ quota = "64m" reserve = "16m" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" stall = "1h" rule '.' {{ class = immutable }} }}""")
    for i, size in enumerate((8, 8, 20, 58, 8, 58, 30, 40, 26)):
        origin.put(f"/{i}", size=size * MIB, seed=i + 1)
        assert m.get(f"/data/{i}").whole, i
        m.settle()


def test_client_store_is_a_setting(mirrord, origin):
    m = mirrord(f"""storage {{ quota = "64m" reserve = "16m" client_store = "64m" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" stall = "1h" rule '.' {{ class = immutable }} }}""")
    for i in range(6):
        origin.put(f"/{i}", size=8 * MIB, seed=i + 1)
        assert m.get(f"/data/{i}").whole
    m.settle()
    origin.put("/large", size=58 * MIB)
    assert Client(m, GREEDY).ask("/data/large")[0] == 200


# --- upload sessions --------------------------------------------------------------------------------------------------

@pytest.fixture
def tight(mirrord):
    return mirrord("""storage { quota = "64m" reserve = "16m" client_uploads = 1 client_upload_bytes = "1m" }
        repo "models" { protocol = "hosted" }""")


def test_an_object_twice_does_not_finish_an_offer(tight):
    hub, offers = Hub(tight), []
    assert hub.create().status == 200
    for n in range(4):
        a, b = b"small%d" % n, b"other%d" % n * 100
        got, answer = hub.batch((sha(a), len(a)), (sha(b), len(b)))
        offers.append(got.status)
        if got.status == 200:
            place = below(answer["objects"][0]["actions"]["upload"]["href"])
            assert [tight.put(place, a).status for _ in range(2)] == [200, 200]
    assert offers == [200, 429, 429, 429]


def test_a_digest_twice_in_a_batch_is_awaited_once(tight):
    hub, a = Hub(tight), b"twice in one batch"
    assert hub.create().status == 200
    got, answer = hub.batch((sha(a), len(a)), (sha(a), len(a)))
    assert got.status == 200
    assert tight.put(below(answer["objects"][0]["actions"]["upload"]["href"]), a).status == 200
    assert hub.batch((sha(b"x"), 1))[0].status == 200


def opened(m, token, tree="me/x"):
    got = m.put(f"/models/{tree}/-/uploads", b"", token=token, method="POST")
    return f"/models/{tree}/-/uploads/{json.loads(got.body)['upload']}"


def test_small_files_count(tight):
    """They did not, and each that was overwritten made room for others."""
    token = tight.token("ci", "publish:models/*")
    place = opened(tight, token)
    data = [bytes([i]) * (32 * KIB) for i in range(40)]
    statuses = [tight.put(f"{place}/f{i}", data[i], token=token).status for i in range(40)]
    assert statuses == [201] * 32 + [507] * 8
    assert [tight.put(f"{place}/f0", data[i], token=token).status for i in range(3)] == [201] * 3
    assert tight.put(f"{place}/more", data[0], token=token).status == 507
    assert tight.put(f"{place}/commit", b"", token=token, method="POST").status == 201
    assert tight.put(f"{opened(tight, token)}/more", data[0], token=token).status == 201


def test_a_file_begun_again_counts_as_it_lies(tight):
    """900 KiB, then one byte of them again: what counted was one byte, what lay there was all."""
    token = tight.token("ci", "publish:models/*")
    place = opened(tight, token)
    for i in range(5):
        data = bytes([i]) * (900 * KIB)
        first = tight.put(f"{place}/f{i}", data, token=token, headers={"Content-Range": f"bytes 0-{len(data) - 1}/{MIB}"})
        again = tight.put(f"{place}/f{i}", b"x", token=token, headers={"Content-Range": f"bytes 1-1/{MIB}"})
        assert (first.status, again.status) == (308, 308)
    assert tight.metric("mirrord_cache_parked_bytes") <= MIB


def test_what_a_session_lets_go_is_gone_at_once(small):
    """Files that were overwritten, and those of an aborted session, counted for nobody and stayed for an hour."""
    token, size = small.token("ci", "publish:models/*"), 200 * KIB
    data = [bytes([i]) * size for i in range(20)]

    def used():
        return small.metric("mirrord_cache_bytes")
    before = used()
    place = opened(small, token)
    for d in data:
        assert small.put(f"{place}/f", d, token=token).status == 201
    assert used() - before <= 2 * size
    assert small.put(f"{place}/same", data[-1], token=token).status == 201
    assert small.put(f"{place}/f", data[0], token=token).status == 201  # "same" still has the bytes
    assert small.put(f"{place}/commit", b"", token=token, method="POST").status == 201
    assert small.get("/models/me/x/same").body == data[-1] and small.get("/models/me/x/f").body == data[0]
    place = opened(small, token, "me/y")
    for i, d in enumerate(data):
        assert small.put(f"{place}/f{i}", d, token=token).status == 201
    assert small.put(place, b"", token=token, method="DELETE").status == 204
    assert used() - before <= 3 * size
    assert small.get("/models/me/x/same").body == data[-1]  # a tree has them
    assert small.ctl("verify").returncode == 0


def test_what_xet_has_brought_counts(mirrord):
    """Until files were made of it; it counted for nobody as soon as it was whole."""
    m = mirrord("""storage { quota = "64m" reserve = "16m" client_upload_bytes = "4m" }
        repo "models" { protocol = "hosted" }""")
    hub = Hub(m)
    assert hub.create().status == 200
    m.ci = hub.token
    place, at = opened(m, m.ci), xet_store(m)
    assert m.put(f"{place}/f", bytes(MIB // 2), token=m.ci).status == 201

    def pieces(i):
        return [bytes([i, k]) * (64 * KIB) for k in range(8)]

    def brings(i):
        return m.put(f"{at}/v1/xorbs/default/{i:064x}", b"".join(map(chunk, pieces(i))), token=m.ci, method="POST").status
    assert [brings(i) for i in (1, 1, 2, 2, 3, 4, 5)] == [200] * 5 + [507] * 2  # again is not more
    good = shard((sha(b"".join(pieces(1))), [(f"{1:064x}", 0, 8, MIB)]))
    assert m.put(f"{at}/v1/shards", good, token=m.ci, method="POST").status == 200
    assert [brings(i) for i in (4, 5, 6, 7)] == [200] * 3 + [507]  # the next files of the same upload
    assert m.put(place, b"", token=m.ci, method="DELETE").status == 204
    assert brings(7) == 200  # one upload alone is bounded by the quota
    assert m.ctl("verify").returncode == 0


def test_an_upload_by_xet_may_end_in_several_shards(mirrord):
    """All of its xorbs come first. Those of a shard that is still to come went with those of the first one, when the upload was larger than
    what a client may keep."""
    m = mirrord("""storage { quota = "128m" reserve = "16m" client_upload_bytes = "4m" }
        repo "models" { protocol = "hosted" }""")
    hub = Hub(m)
    assert hub.create().status == 200
    m.ci = hub.token
    at = xet_store(m)

    def pieces(i):
        return [bytes([i, k]) * (64 * KIB) for k in range(8)]

    def brings(i):
        return m.put(f"{at}/v1/xorbs/default/{i:064x}", b"".join(map(chunk, pieces(i))), token=m.ci, method="POST").status
    assert [brings(i) for i in range(1, 9)] == [200] * 8
    for i in range(1, 9):
        made = shard((sha(b"".join(pieces(i))), [(f"{i:064x}", 0, 8, MIB)]))
        assert m.put(f"{at}/v1/shards", made, token=m.ci, method="POST").status == 200, i
    place, at = opened(m, m.ci), xet_store(m)
    assert m.put(f"{place}/f", bytes(MIB // 2), token=m.ci).status == 201
    assert [brings(i) for i in (11, 12, 13, 14)] == [200] * 3 + [507], "what is left of the upload counts no more and no less"
    assert m.ctl("verify").returncode == 0


def test_what_xet_keeps_for_the_next_files_counts(mirrord):
    """It lay there for a day, as much as a client cared to bring. No upload is refused for it: what was brought last is not kept."""
    m = mirrord("""storage { quota = "256m" reserve = "16m" client_upload_bytes = "4m" }
        repo "models" { protocol = "hosted" }""")
    hub = Hub(m)

    def used():
        return m.metric("mirrord_cache_bytes")
    before, kept = used(), []
    for i in range(12):
        tree = f"me/t{i}"
        assert hub.create(f"t{i}").status == 200
        m.ci = hub.token
        at, pieces = xet_store(m, tree), [bytes([i, k]) * (64 * KIB) for k in range(8)]
        for _ in range(2):  # again is not more
            assert m.put(f"{at}/v1/xorbs/default/{i:064x}", b"".join(map(chunk, pieces)), token=m.ci, method="POST").status == 200
        made = shard((sha(b"".join(pieces)), [(f"{i:064x}", 0, 8, MIB)]))
        assert m.put(f"{at}/v1/shards", made, token=m.ci, method="POST").status == 200
        known = m.put(f"{at}/v1/xorb-grants/default/{i:064x}", b"{}", token=m.ci, method="POST").status == 200
        assert (xet_store(m, tree) == at) == known  # a client remembers what it brought to an address
        kept.append(known)
    assert kept == [True] * 3 + [False] * 9  # each is a little more than 1 MiB
    until(lambda: used() - before < 16.5 * MIB)
    assert m.ctl("verify").returncode == 0
