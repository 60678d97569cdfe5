"""Bodies that break off at the same byte each time, and origins that vanish in the middle of one: clients hear why before they give up."""
import concurrent.futures
import threading

import pytest

from harness import serving
from harness.hub import Big, read
from harness.mirrord import SLOW, free_port, until

MIB = 1 << 20


def test_a_body_that_always_breaks_off(mirrord, hub):
    """Its client has what came, is cut, asks for the rest, and is told why there is none."""
    hub.repo("org/big", files={"model.safetensors": Big(8 * MIB)})
    hub.order(".", ("wall", 3 * MIB), times=1 << 30, cdn=True)
    m = mirrord(hub.config(more="stall = 1h"))
    path = "/hf/org/big/resolve/main/model.safetensors"
    got = m.get(path, limit_s=60 * SLOW)
    assert got.status == 200 and not got.whole and got.rc != 28 and got.body == read(Big(8 * MIB), 0, 3 * MIB)
    got = m.get(path, headers={"Range": f"bytes={3 * MIB}-"}, limit_s=60 * SLOW)
    assert got.status in (502, 503) and "ended early" in got["x-error-message"], got
    hub.cdn_script.clear()
    until(lambda: m.get(path).body == read(Big(8 * MIB)))


def test_a_body_that_always_breaks_off_elsewhere(mirrord, origin, wire):
    origin.put("/a.bin", size=8 * MIB, wall_at=3 * MIB)
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" stall = 1h }}')
    got = m.get("/data/a.bin", wire, limit_s=60 * SLOW)
    assert got.status == 200 and not got.whole and got.rc != 28 and got.body == origin.bytes_of("/a.bin", 0, 3 * MIB)
    got = m.get("/data/a.bin", wire, headers={"Range": f"bytes={5 * MIB}-"}, limit_s=60 * SLOW)
    assert got.status in (502, 503) and b"ended early" in got.body, got


class Vanishing(serving.Server):
    """Its clients are let go whatever happened: whoever waits for one waits for it."""
    def __init__(self):
        super().__init__(("127.0.0.1", free_port()), Hangs)
        self.lock, self.back, self.asked, self.data = threading.Lock(), threading.Event(), 0, Big(8 * MIB).read(0, 8 * MIB)

    def __exit__(self, *exc):
        self.back.set()


class Hangs(serving.Handler):
    """Three MiB of eight, then the origin hangs up on everybody, until `back` is set."""
    def do_GET(self):
        o = self.server
        with o.lock:
            o.asked += 1
            first = o.asked == 1
        if not first and not o.back.is_set():
            self.cut()
            return
        at, _, last = (self.headers.get("Range") or "bytes=0-")[6:].partition("-")
        at, end = int(at), int(last) + 1 if last else len(o.data)
        self.send_response_only(206 if "Range" in self.headers else 200)
        for name, value in {"ETag": '"one"', "Accept-Ranges": "bytes", "Content-Length": str(end - at)}.items():
            self.send_header(name, value)
        if "Range" in self.headers:
            self.send_header("Content-Range", f"bytes {at}-{end - 1}/{len(o.data)}")
        self.end_headers()
        self.wfile.write(o.data[at:3 * MIB if first else end])
        if first:
            self.cut()


@pytest.fixture
def vanishing():
    o = Vanishing()
    serving.run(o)
    yield o
    o.back.set()
    serving.stop(o)


def test_who_joins_a_fetch_that_waits(mirrord, vanishing, tmp_path):
    """The first client waits for an origin that may come back; who comes for what is missing is told, for what is here gets it."""
    m = mirrord(f"""cache {{ tries = 1000 }}
                    repo "data" {{ protocol = "generic" origin = "http://127.0.0.1:{vanishing.server_address[1]}/" stall = 1h }}""")
    with concurrent.futures.ThreadPoolExecutor(1) as pool, vanishing:
        first = pool.submit(m.get, "/data/a.bin", limit_s=600 * SLOW)
        until(lambda: vanishing.asked > 3)
        for _ in range(2):
            got = m.get("/data/a.bin", headers={"Range": f"bytes={4 * MIB}-{5 * MIB}"}, limit_s=60 * SLOW)
            assert got.status in (502, 503) and b"connection broke" in got.body, got
        got = m.get("/data/a.bin", headers={"Range": f"bytes=0-{MIB - 1}"}, limit_s=60 * SLOW)
        assert got.status == 206 and got.body == vanishing.data[:MIB]
        assert not first.done()
        vanishing.back.set()
        until(lambda: m.get("/data/a.bin", headers={"Range": "bytes=-10"}).status == 206)
        assert (first.result().rc, first.result().body == vanishing.data) == (0, True)
