"""Many clients, one cold object: one transfer from the origin, and nobody waits for the last byte to get the first."""
import concurrent.futures
import json
import subprocess

import pytest

from harness.mirrord import BUILD, SLOW

MIB = 1 << 20
DL = BUILD / "bench" / "dl"


def herd(m, path, clients, reference=None, headers=(), midway=lambda: None):
    """tests/bench/dl.c: clients that compare each byte with the reference."""
    check = ["-c", str(reference)] if reference else []
    fields = [x for h in headers for x in ("-H", h)]
    with subprocess.Popen([DL, "-n", str(clients), "-t", str(600 * SLOW), *check, *fields, str(m.port), path],
                          stdout=subprocess.PIPE, text=True) as run:
        try:
            midway()
            said = run.stdout.read()
        finally:
            run.kill()
    return json.loads(said)


@pytest.fixture
def data(mirrord, origin):
    m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" stall = "1h" rule '.' {{ class = immutable }} }}""")
    m.origin = origin
    return m


def reference(data, path, folder):
    file = folder / "reference"
    with open(file, "wb") as f:
        size = data.origin.stats(path).size
        for at in range(0, size, MIB):
            f.write(data.origin.bytes_of(path, at, min(size, at + MIB)))
    return file


def test_a_hundred_clients_cost_one_transfer(data, tmp_path):
    size = (256 if SLOW == 1 else 32) * MIB
    thing = data.origin.put("/big", size=size, hold_at=size // 16)

    def midway():
        """All have had what the origin has given so far: nobody's first byte waits for anybody's last."""
        data.reaches("mirrord_http_sent_bytes_total", 100 * (size // 16))
        thing.go.set()
    got = herd(data, "/data/big", 100, reference(data, "/big", tmp_path), midway=midway)
    assert (got["whole"], got["wrong"], got["status"]) == (100, 0, 200), got
    assert thing.bytes == size


def test_herd_over_every_wire(data, wire):
    thing = data.origin.put("/big", size=8 * MIB, rate=16 * MIB)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(lambda _: data.get("/data/big", wire), range(20)))
    body = data.origin.bytes_of("/big")
    assert all(r.whole and r.body == body for r in replies)
    assert thing.bytes == 8 * MIB


def test_herd_on_one_cold_range(data, tmp_path):
    thing = data.origin.put("/big", size=64 * MIB, hold_at=16 * MIB, hold_end=60000000 // MIB * MIB)
    got = herd(data, "/data/big", 8, reference(data, "/big", tmp_path), ["Range: bytes=60000000-60999999"])
    assert (got["whole"], got["wrong"], got["status"]) == (8, 0, 206), got
    assert sum(end > 60000000 and first < 61000000 for first, end in thing.spans) == 1, "one question for that region"
    thing.go.set()


def test_random_ranges_fetch_each_byte_once(data, wire):
    size = 32 * MIB
    data.origin.put("/big", size=size, rate=64 * MIB)
    spans = [(i * 7919 * 131 % (size - MIB), 1 + i * 6151 % MIB) for i in range(40)]

    def one(span):
        first, n = span
        reply = data.get("/data/big", wire, headers={"Range": f"bytes={first}-{first + n - 1}"})
        return reply.status == 206 and reply.body == data.origin.bytes_of("/big", first, first + n)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, spans))
    assert data.get("/data/big", wire).body == data.origin.bytes_of("/big")
    assert data.metric("mirrord_upstream_bytes_total") <= size + 4 * MIB, "bytes came twice"  # the origin had more on the way, maybe


def test_a_stopped_reader_holds_nobody(data):
    """One client that reads nothing must not keep the others, or the fill, from going on."""
    data.origin.put("/big", size=32 * MIB)
    lazy = subprocess.Popen(["curl", "-qsS", "--limit-rate", "1k", "-o", "/dev/null", data.url("/data/big")])
    try:
        got = herd(data, "/data/big", 10)
        assert got["whole"] == 10
    finally:
        lazy.kill()
        lazy.wait()
