"""The corridor: what an answer says to caches and clients that stand behind it, who a client is, and what a reload, a drain or
an early answer does to those that are under way."""
import hashlib
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from harness.curl import FLAGS
from harness.mirrord import SLOW

DATA = os.urandom(1 << 20)
CONFIG = """
repo "data" {{ protocol = "generic" origin = "{origin}/" rule '.' {{ class = immutable }} }}
repo "secret" {{ protocol = "generic" origin = "{origin}/" access {{ anonymous = none }} rule 'a$' {{ class = immutable }} }}
repo "models" {{ protocol = "hosted" }}
{more}
"""


@pytest.fixture
def house(mirrord, origin):
    def start(more="", **kw):
        origin.put("/a", size=100000)
        origin.put("/mutable", size=1000, fields="Cache-Control: max-age=600")
        m = mirrord(CONFIG.format(origin=origin.url, more=more), **kw)
        m.publisher = m.token("ci", "publish:models/*", "read:secret/*")
        return m
    return start


def bearer(m):
    return {"Authorization": f"Bearer {m.publisher}"}


# --- what is said to caches behind us ---

@pytest.mark.parametrize("path", ["/secret/a", "/secret/mutable"])
def test_no_shared_cache_keeps_what_needs_a_right(house, path, wire):
    m = house()
    for _ in range(2):
        got = m.get(path, wire, headers=bearer(m))
        assert got.status == 200 and "public" not in got["cache-control"] and "private" in got["cache-control"]
    assert m.get(path, wire).status == 401


FRESHNESS = {  # repo, what the origin says, and all that the client is told in Cache-Control; None: nothing, Expires says it
    "the origin's own": ("plain", "Cache-Control: max-age=600, must-revalidate|Expires: Thu, 01 Jan 2099 00:00:00 GMT",
                         "max-age=600, must-revalidate"),
    "nothing is kept": ("plain", "Cache-Control: no-store|Pragma: no-cache", "no-store"),
    "dated": ("plain", "Expires: Thu, 01 Jan 2099 00:00:00 GMT", None),
    "a rule's": ("ruled", "Cache-Control: no-cache|Expires: 0", "public, max-age=3600"),
    "immutable": ("data", "Cache-Control: no-store|Pragma: no-cache", "public, max-age=31536000, immutable"),
    "by token": ("secret", "Cache-Control: public, max-age=600", "private, max-age=600"),
}


@pytest.mark.parametrize("repo, says, wanted", FRESHNESS.values(), ids=FRESHNESS.keys())
def test_one_word_on_freshness(house, origin, repo, says, wanted):
    m = house(f"""repo "plain" {{ protocol = "generic" origin = "{origin.url}/" }}
                  repo "ruled" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ ttl = 1h }} }}""")
    origin.put("/m", size=100, fields=says)
    for _ in range(2):
        run = subprocess.run(["curl", "-q", "-sS", "--noproxy", "*", "-D", "-", "-o", os.devnull, "-H",
                              f"Authorization: Bearer {m.publisher}", m.url(f"/{repo}/m")], capture_output=True, text=True, check=True)
        told = re.findall(r"(?im)^(cache-control|expires|pragma): (.*?)\r?$", run.stdout)
        said = [value for name, value in told if name == "cache-control"]
        assert said == ([wanted] if wanted else []), run.stdout
        assert len(told) == (2 if repo == "plain" and wanted else 1), run.stdout
        m.settle()


def test_a_refused_range_is_not_kept_for_a_year(house, wire):
    m = house()
    m.get("/data/a", wire)
    for fields, status in (({"Range": "bytes=900000-"}, 416), ({"If-Match": '"other"'}, 412)):
        got = m.get("/data/a", wire, headers=fields)
        assert got.status == status and got["content-length"] == "0"
        assert "immutable" not in (got["cache-control"] or "") and got["repr-digest"] is None
        assert got["content-type"] is None
    assert m.get("/data/a", wire, headers={"Range": "bytes=900000-"})["content-range"] == "bytes */100000"


def test_not_modified_says_what_a_200_would(house, wire):
    m = house()
    full = m.get("/data/a", wire)
    got = m.get("/data/a", wire, headers={"If-None-Match": full["etag"]})
    assert got.status == 304 and not got.body and got["content-length"] in (None, full["content-length"])
    for name in ("etag", "cache-control", "vary", "last-modified"):
        assert got[name] == full[name], name
    assert got["date"] and got["age"]


@pytest.mark.parametrize("path, allow", [("/data/a", "GET, HEAD"), ("/", "GET, HEAD"), ("/models/me/x/f", "GET, HEAD, PUT, DELETE"),
                                         ("/models/me/", "GET, HEAD"), ("/models/me/x@v1/f", "GET, HEAD")])
def test_a_refused_method_names_those_that_are_not(house, path, allow, wire):
    m = house()
    for method in ("POST", "OPTIONS"):
        got = m.put(path, b"x", wire, m.publisher, method=method)
        assert (got.status, got["allow"]) == (405, allow)


def test_two_accept_fields_are_one_list(mirrord, origin):
    """The first alone decided what the table kept, all of them what was made."""
    html = b'<!doctype html><a href="p-1.tar.gz">p-1.tar.gz</a>'
    origin.put("/simple/p/", body=html, type="text/html", fields="Cache-Control: max-age=600")
    m = mirrord(f'repo "pypi" {{ protocol = "pypi" origin = "{origin.url}/" }}')
    both = ["-H", "Accept: text/html;q=0.1", "-H", "Accept: application/vnd.pypi.simple.v1+json"]
    for _ in range(2):
        assert "json" in m.get("/pypi/simple/p/", args=both)["content-type"]
        m.settle()
    assert "html" in m.get("/pypi/simple/p/", headers={"Accept": "text/html;q=0.1"})["content-type"]


def test_a_folder_without_its_slash_keeps_its_query(house, wire):
    m = house()
    m.put("/models/me/x/sub/f", b"1", wire, m.publisher)
    assert m.get("/models/me/x?recursive=1", wire)["location"] == "./x/?recursive=1"


def test_a_damaged_file_is_not_said_to_be_absent(house, wire):
    m = house()
    m.put("/models/me/x/f", DATA, wire, m.publisher)
    digest = hashlib.sha256(DATA).hexdigest()
    (m.state / "blobs" / digest[:2] / digest[2:4] / digest).unlink()
    assert m.get("/models/me/x/f", wire).status == 500


# --- rates ---

def test_rate_holds_for_a_client_over_all_its_answers(house, origin, wire):
    m = house('limit "anonymous" { rate = "4m/s" }')
    origin.put("/big", size=4 << 20)
    m.get("/data/big", wire)
    m.settle()
    began = time.monotonic()
    got = [subprocess.Popen(["curl", "-q", "-sS", "-k", *FLAGS[wire], "-o", "/dev/null", m.url("/data/big", wire)])
           for _ in range(4)]
    assert [p.wait() for p in got] == [0] * 4
    assert time.monotonic() - began > 1, "16 MiB at 4 MiB/s came in parallel at more"


def test_blobs_by_digest_are_limited_too(house, wire):
    m = house('limit "anonymous" { rate = "1m/s" }')
    data = DATA * 4
    m.put("/models/me/x/f", data, wire, m.publisher)
    began = time.monotonic()
    got = m.get("/-/blob/" + hashlib.sha256(data).hexdigest(), wire)
    assert got.body == data and time.monotonic() - began > 1


# --- proxies ---

def page_base(m, **headers):
    return re.search(rb'"base_url":"([^"]*)"', m.get("/-/status.json", headers=headers).body)[1].decode()


def test_forwarded_fields_count_from_trusted_proxies_alone(house):
    said = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "mirror.example", "X-Forwarded-For": "203.0.113.9"}
    m = house()
    assert page_base(m, **said) == f"http://127.0.0.1:{m.port}"
    m.config += 'trusted_proxies = {"127.0.0.0/8", "10.0.0.0/8"}\n'
    m.reload()
    assert page_base(m, **said) == "https://mirror.example"
    assert page_base(m, Forwarded='for="[2001:db8::7]:4711";proto=https;host="mirror.example:8443"') == \
        "https://mirror.example:8443"
    assert page_base(m, **dict(said, **{"X-Forwarded-Host": 'a"><script>'})) == f"https://127.0.0.1:{m.port}"
    for i, (who, client) in enumerate((("203.0.113.9", "203.0.113.9"), ("198.51.100.1, 203.0.113.9, 10.1.2.3", "203.0.113.9"),
                        ("203.0.113.9:1234", "203.0.113.9"), ("nonsense", "127.0.0.1"), ("10.0.0.1", "10.0.0.1"))):
        m.get("/data/a?" + who.replace(" ", ""), headers={"X-Forwarded-For": who})
        assert m.answered("/data/a", i + 1)[-1]["client"] == client, who


def test_a_token_behind_a_trusted_proxy_must_have_come_over_tls(house):
    m = house('trusted_proxies = {"127.0.0.0/8"}')
    far = {"X-Forwarded-For": "203.0.113.9"}
    assert m.get("/secret/a", headers=bearer(m) | far).status == 401
    assert m.get("/secret/a", headers=bearer(m) | far | {"X-Forwarded-Proto": "http"}).status == 401
    assert m.get("/secret/a", headers=bearer(m) | far | {"X-Forwarded-Proto": "https"}).status == 200


def test_limits_are_of_the_client_behind_the_proxy(house):
    m = house('trusted_proxies = {"127.0.0.0/8"}\nlimit "anonymous" { requests = "0.01/s" burst = 1 connections = 2 }')
    assert [m.get("/data/a", headers={"X-Forwarded-For": f"203.0.113.{i}"}).status for i in range(8)] == [200] * 8
    assert 429 in [m.get("/data/a", headers={"X-Forwarded-For": "203.0.113.99"}).status for i in range(8)]
    held = [socket.create_connection(("127.0.0.1", m.port)) for _ in range(8)]
    for s in held:
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 200")
        s.close()


# --- what is under way ---

def test_readers_see_what_was_just_published(house):
    """A reader that looked before a publish must not leave its answer in the table for those that come after."""
    m = house()
    stop = threading.Event()

    def read():
        with socket.create_connection(("127.0.0.1", m.port)) as s:
            while not stop.is_set():
                s.sendall(b"GET /models/me/x/f HTTP/1.1\r\nHost: x\r\n\r\n" * 8)
                s.recv(1 << 16)

    m.put("/models/me/x/f", b"start", token=m.publisher)
    readers = [threading.Thread(target=read) for _ in range(4)]
    for r in readers:
        r.start()
    try:
        for i in range(60):
            body = b"%08d" % i
            assert m.put("/models/me/x/f", body, token=m.publisher).status in (200, 201, 204)
            for _ in range(3):
                assert m.get("/models/me/x/f").body == body
    finally:
        stop.set()
        for r in readers:
            r.join()


def test_reloads_from_all_sides_while_requests_and_fills_run(house, origin):
    m = house()
    origin.put("/slow", size=8 << 20, rate=4 << 20)
    slow = subprocess.Popen(["curl", "-sS", "-o", "/dev/null", m.url("/data/slow")])
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            assert m.get("/data/a").status == 200

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for t in askers:
        t.start()
    for _ in range(10):
        tools = [subprocess.Popen([m.build / "mirrorctl", "--socket", m.socket, "config", "reload"],
                                  stdout=subprocess.DEVNULL) for _ in range(4)]
        m.child.send_signal(signal.SIGHUP)
        assert all(t.wait(120 * SLOW) == 0 for t in tools)
    stop.set()
    for t in askers:
        t.join()
    assert slow.wait(120 * SLOW) == 0 and m.alive()
    m.stop()


@pytest.mark.parametrize("drain", ["0", "1s"])
def test_sigterm_during_fills_and_uploads(house, origin, drain):
    for _ in range(3):
        m = house(f'drain = "{drain}"')
        for i in range(4):
            origin.put(f"/slow{i}", size=64 << 20, rate=8 << 20)
        gets = [subprocess.Popen(["curl", "-s", "-o", "/dev/null", m.url(f"/data/slow{i}")]) for i in range(4)]
        puts = [subprocess.Popen(["curl", "-s", "-o", "/dev/null", "-T", "-", "-H", f"Authorization: Bearer {m.publisher}",
                                  m.url(f"/models/me/x/f{i}", "h2"), "-k"], stdin=open("/dev/zero", "rb")) for i in range(4)]
        time.sleep(0.7)
        m.stop()
        for p in gets + puts:
            p.kill()
            p.wait()


def test_an_upload_that_fails_half_way_is_answered_and_let_go(mirrord, wire):
    """The peer was held by back-pressure when the disk was full: nobody ever let it go."""
    m = mirrord('repo "models" { protocol = "hosted" }\nstorage { quota = "16m" reserve = "1m" }\nhttp { stall = 20s }')
    token = m.token("ci", "publish:models/*")
    run = subprocess.run(["curl", "-q", "-s", "-k", *FLAGS[wire], "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "200", "-T", "-",
                          "-H", f"Authorization: Bearer {token}", m.url("/models/me/x/f", wire)],
                         stdin=open("/dev/zero", "rb"), capture_output=True, text=True, check=False)
    assert run.stdout == "507" and run.returncode != 28, run


def test_a_sender_that_never_reads_its_507_is_not_kept(mirrord):
    m = mirrord('repo "models" { protocol = "hosted" }\nstorage { quota = "16m" reserve = "1m" }\nhttp { stall = 1s }')
    token = m.token("ci", "publish:models/*")
    with socket.create_connection(("127.0.0.1", m.port)) as s:
        s.settimeout(120 * SLOW)
        s.sendall(f"PUT /models/me/x/f HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                  f"Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
        end = time.monotonic() + 120 * SLOW
        with pytest.raises(ConnectionError):
            while time.monotonic() < end:  # what is read and dropped meanwhile has no number
                s.sendall(chunk)
