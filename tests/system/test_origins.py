"""A repository with several origins of the same files, as an edge has them of its core: one that refuses, breaks off, is silent or away rests, and the
next one goes on (server/fetch/alternates.h)."""
import concurrent.futures
import json
import os
import random
import signal
import subprocess
import threading
import time

import pytest

from harness.hub import Big, read
from harness.mirrord import BUILD, SANITIZERS, free_port, until
from harness.origin import Origin, span
from harness.way import Way
from system.test_sync import run

MIB = 1 << 20
BIG = random.Random(5).randbytes(12 * MIB + 77)
SMALL = {f"set/{i}.txt": random.Random(i).randbytes(300 * i + 1) for i in range(30)}


def edge_conf(urls, more="", protocol="generic"):
    listed = ", ".join(f'"{u}"' for u in urls)
    return f'repo "data" {{ protocol = "{protocol}" origin = {{{listed}}} rule "." {{ class = immutable }} {more} }}'


@pytest.fixture
def two():
    with Origin(port=free_port()) as a, Origin() as b:  # nobody else takes the first one's port when it is away
        for o in (a, b):
            o.put("/x/a.bin", size=3 * MIB)
        yield a, b


def urls(*origins):
    return [o.url + "/x" for o in origins]


# --- fake origins --------------------------------------------------------------------------------------------------------------


def test_the_first_is_asked_alone(mirrord, two, wire):
    a, b = two
    m = mirrord(edge_conf(urls(a, b)))
    assert m.get("/data/a.bin", wire).body == a.bytes_of("/x/a.bin")
    m.settle()
    assert a.stats("/x/a.bin").bytes == 3 * MIB and b.stats("/x/a.bin").bytes == 0


def test_the_first_is_away(mirrord, two):
    """Its place is known after one request, whoever asks next."""
    a, b = two
    a.close()
    for i in range(20):
        b.put(f"/x/{i}", size=100)
    m = mirrord(edge_conf(urls(a, b)))
    began = time.monotonic()
    for i in range(20):
        assert m.get(f"/data/{i}").status == 200
    assert m.get("/data/a.bin").body == b.bytes_of("/x/a.bin")
    m.says("origin.rests")
    assert m.log().count("origin.rests") <= 1 + (time.monotonic() - began) // 5  # it rests so many seconds, then one asks it again
    checked = json.loads(m.ctl("--json", "upstream", "check", check=False).stdout)
    assert [(r["origin"], r["up"]) for r in checked] == [(urls(a)[0], False), (urls(b)[0], True)]


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_the_first_refuses(mirrord, two, status):
    a, b = two
    a.put("/x/a.bin", size=3 * MIB, status=status)
    m = mirrord(edge_conf(urls(a, b)))
    assert m.get("/data/a.bin").body == b.bytes_of("/x/a.bin")
    m.settle()
    assert b.stats("/x/a.bin").bytes == 3 * MIB


def test_what_is_no_failure_is_the_answer(mirrord, two):
    a, b = two
    a.put("/x/none", size=10, status=404)
    b.put("/x/none", size=10)
    m = mirrord(edge_conf(urls(a, b)))
    assert m.get("/data/none").status == 404 and b.stats("/x/none").requests == 0


def test_the_first_breaks_off(mirrord, two, wire):
    """The second goes on with the next byte."""
    a, b = two
    a.put("/x/a.bin", size=3 * MIB, short=MIB)
    m = mirrord(edge_conf(urls(a, b)))
    assert m.get("/data/a.bin", wire).body == b.bytes_of("/x/a.bin")
    m.settle()
    assert a.stats("/x/a.bin").bytes + b.stats("/x/a.bin").bytes <= 3 * MIB + 64 * 1024


def test_the_first_is_silent(mirrord, two):
    a, b = two
    for o in two:
        for i in range(20):
            o.put(f"/x/{i}", size=100)
    a.put("/x/a.bin", size=3 * MIB, hold_at=0)
    m = mirrord(edge_conf(urls(a, b), 'stall = "6s"'))  # the second one may be slow, of a busy machine
    assert m.get("/data/a.bin").body == b.bytes_of("/x/a.bin")
    for i in range(20):
        assert m.get(f"/data/{i}").status == 200
    a.stats("/x/a.bin").go.set()


def test_all_are_away(mirrord, two):
    a, b = two
    for o in two:
        o.put("/x/a.bin", size=3 * MIB, status=503)
    m = mirrord(edge_conf(urls(a, b)))
    assert m.get("/data/a.bin").status in (502, 503, 504)
    for o in two:
        o.put("/x/a.bin", size=3 * MIB)
    until(lambda: m.get("/data/a.bin").status == 200)


def test_an_order_that_changes_keeps_what_is_there(mirrord, two):
    a, b = two
    m = mirrord(edge_conf(urls(a, b)))
    assert m.get("/data/a.bin").status == 200
    m.settle()
    m.config = edge_conf(urls(b, a))
    m.stop()
    m.write_config()
    m.start()
    assert m.get("/data/a.bin").status == 200
    assert a.stats("/x/a.bin").requests + b.stats("/x/a.bin").requests == 1


@pytest.mark.parametrize("listed, says", [
    ('{"http://a/", "s3://b/"}', "only http and https"), ('{"http://a/", "rsync://b/c/"}', "only http and https"),
    ('{"http://a/", "http://a"}', "listed twice"), ("{%s}" % ", ".join(f'"http://a{i}/"' for i in range(17)), "more than 16"),
    ('{"http://a/", "nonsense"}', "nonsense")])
def test_lists_that_are_none(tmp_path, listed, says):
    conf = tmp_path / "x.conf"
    conf.write_text(f'state_dir = "{tmp_path}/s" repo "data" {{ protocol = "generic" origin = {listed} }}')
    done = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True, env={**os.environ, **SANITIZERS}, check=False)
    assert done.returncode == 78 and says in done.stdout + done.stderr, done


# --- an edge of two cores ------------------------------------------------------------------------------------------------------


class Edge:
    def __init__(self, mirrord, more=""):
        self.cores = [mirrord('repo "models" { protocol = "hosted" }') for _ in range(2)]
        self.published = {**SMALL, "big.bin": BIG}
        for m in self.cores:
            token = m.token("ci", "publish:models/*")
            for name, data in self.published.items():
                assert m.put(f"/models/me/gpt/{name}", data, token=token).status == 201
        self.ways = [Way(m.port) for m in self.cores]
        self.m = mirrord(edge_conf([f"http://127.0.0.1:{w.port}/models" for w in self.ways], more))

    def at(self, node, what, where):
        left, lock = [where], threading.Lock()

        def midway(_target, n):
            with lock:
                before, left[0] = left[0], left[0] - n
            if before > 0 >= left[0]:
                what(self.cores[node])
        self.ways[node].midway = midway

    def has(self, name):
        return self.m.get(f"/data/me/gpt/{name}").body == self.published[name]


@pytest.mark.parametrize("at", [1, 5000, 4 * MIB, 12 * MIB])
def test_a_core_that_is_killed_in_mid_file(mirrord, at):
    e = Edge(mirrord)
    e.at(0, lambda m: m.kill(), at)
    assert e.has("big.bin")
    assert not e.cores[0].alive()
    assert sum(w.bytes for w in e.ways) < len(BIG) + MIB
    for name in SMALL:
        assert e.has(name)
    e.cores[0].start()


def test_a_core_that_is_stopped(mirrord):
    """One request finds out; the others do not wait for it again."""
    e = Edge(mirrord, 'stall = "6s" connect_timeout = "6s"')  # the other one may be slow, of a busy machine
    e.at(0, lambda m: m.child.send_signal(signal.SIGSTOP), 3 * MIB)
    try:
        assert e.has("big.bin")
        for name in SMALL:
            assert e.has(name)
    finally:
        e.cores[0].child.send_signal(signal.SIGCONT)
    assert sum(w.bytes for w in e.ways) < len(BIG) + sum(map(len, SMALL.values())) + 2 * MIB


def test_cores_that_come_and_go_under_load(mirrord):
    e = Edge(mirrord)
    stop = threading.Event()

    def trouble():
        dice = random.Random(1)
        while not stop.is_set():
            m = dice.choice(e.cores)
            m.kill()
            m.start()
            stop.wait(0.1)
    t = threading.Thread(target=trouble)
    t.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for name, reply in zip(SMALL, pool.map(lambda n: e.m.get(f"/data/me/gpt/{n}", limit_s=120), SMALL)):
                if reply.status == 200:
                    assert reply.body == SMALL[name]
    finally:
        stop.set()
        t.join()
    for name in e.published:
        until(lambda name=name: e.has(name))


def test_a_sync_of_two_cores(mirrord):
    """One that is killed in the middle of a run: the run ends well by the other."""
    e = Edge(mirrord)
    m = mirrord(f'''repo "x" {{ protocol = "generic" origin = {{{", ".join(f'"http://127.0.0.1:{w.port}/models/me/gpt/"' for w in e.ways)}}}
        sync {{ engine = "mirrord" backoff = "100ms" tries = 4 }} }}''')
    e.at(0, lambda core: core.kill(), 6 * MIB)
    assert run(m)["outcome"] == "published"
    for name, data in e.published.items():
        assert m.get(f"/x/{name}").body == data
    e.cores[0].start()


def test_an_edge_of_two_hubs(mirrord, hub):
    """Redirects, listings and files of a Hub that two cores mirror."""
    files = {"README.md": b"# demo\n", "config.json": b"{}", "model.safetensors": Big(3 << 20), "sub/deep/weights.bin": Big(70000, 2)}
    hub.repo("org/demo", files=files)
    cores = [mirrord(hub.config()) for _ in range(2)]
    ways = [Way(m.port) for m in cores]
    m = mirrord('repo "hf" { protocol = "hf" origin = {%s} }' % ", ".join(f'"http://127.0.0.1:{w.port}/hf"' for w in ways))
    assert m.get("/hf/org/demo/resolve/main/README.md").body == b"# demo\n"
    cores[0].kill()
    for path, data in files.items():
        until(lambda path=path, data=data: m.get(f"/hf/org/demo/resolve/main/{path}", headers={}).body == read(data))
    assert ways[1].bytes > 3 << 20
    cores[0].start()
