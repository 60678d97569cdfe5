"""Documents of our own making, index pages rewritten and folders listed: one for all who ask, whatever their number."""
import concurrent.futures
import json
import re
import socket

import pytest

from harness.mirrord import SLOW

JSON = "application/vnd.pypi.simple.v1+json"
FILES = 20000
CLIENTS = 60


@pytest.fixture
def page(mirrord, origin):
    """A page of some 5 MB."""
    files = [{"filename": f"big-{i}.whl", "url": f"../../f/big-{i}.whl", "hashes": {"sha256": f"{i:064x}"},
              "requires-python": ">=3.8", "size": i, "yanked": False, "upload-time": "2024-01-01T00:00:00Z"} for i in range(FILES)]
    origin.put("/simple/big/", type=JSON, fields="Cache-Control: max-age=600",
               body=json.dumps({"meta": {"api-version": "1.1"}, "name": "big", "versions": ["1"], "files": files}).encode())
    return mirrord(f"""repo "pypi" {{ protocol = "pypi" origin = "{origin.url}/" }}""")


def ask_slowly(m, path):
    """Asks, and reads nothing for now."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    s.connect(("127.0.0.1", m.port))
    s.settimeout(60 * SLOW)
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {JSON}\r\nConnection: close\r\n\r\n".encode())
    return s


def read_all(s):
    with s, s.makefile("rb") as f:
        return f.read().partition(b"\r\n\r\n")[2]


def test_a_page_is_made_once_for_all_who_hold_it(page):
    m = page
    m.get("/readyz")
    before = m.peak_bytes()
    clients = [ask_slowly(m, "/pypi/simple/big/") for _ in range(CLIENTS)]
    for s in clients:
        assert s.recv(1, socket.MSG_PEEK), "not answered"
    assert m.metric("mirrord_documents_made_total") == 1
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        bodies = list(pool.map(read_all, clients))
    assert len(json.loads(bodies[0])["files"]) == FILES and all(b == bodies[0] for b in bodies)
    if SLOW == 1:  # sanitizers have a memory of their own
        assert m.peak_bytes() - before < CLIENTS / 4 * len(bodies[0])


def test_without_room_on_disk_memory_does(page):
    m = page
    for quota, where in (("8g", "file"), ("8m", "memory")):
        m.stop()
        m.config = re.sub(r'storage \{.*?\}\s*', "", m.config) + f'\nstorage {{ quota = "{quota}" reserve = "16m" }}'
        m.start()
        assert len(json.loads(m.get("/pypi/simple/big/", headers={"Accept": JSON}).body)["files"]) == FILES
        assert m.metric(f"mirrord_documents_{where}_bytes") > 4e6


def test_pages_are_made_again_when_they_change(page, origin):
    m = page
    for _ in range(3):
        m.get("/pypi/simple/big/", headers={"Accept": JSON})
    made = m.metric("mirrord_documents_made_total")
    assert made == 1
    m.get("/pypi/simple/big/", headers={"Accept": "text/html"})
    assert m.metric("mirrord_documents_made_total") == made + 1, "another rendering"
    m.settle()
    m.ctl("cache", "rm", "pypi/simple/")
    origin.put("/simple/big/", type=JSON, body=b'{"meta":{"api-version":"1.1"},"name":"big","files":[]}', etag='"2"')
    assert json.loads(m.get("/pypi/simple/big/", headers={"Accept": JSON}).body)["files"] == []


def test_a_folder_is_listed_once(mirrord):
    m = mirrord("""threads = 2 plaintext_token = true repo "models" { protocol = "hosted" }""")
    token = m.token("me", "publish:models/*")
    assert m.put("/models/me/m/a", b"1", token=token).status == 201
    first = [m.get("/models/me/m/", wire) for wire in ("h1", "h2", "h2c") for _ in range(3)]
    assert all(r.body == first[0].body and r["etag"] == first[0]["etag"] for r in first)
    assert m.metric("mirrord_documents_made_total") <= 2, "more than one a loop"
    assert m.get("/models/me/m/", headers={"If-None-Match": first[0]["etag"]}).status == 304
    assert m.put("/models/me/m/b", b"2", token=token).status == 201
    assert {f["path"] for f in json.loads(m.get("/models/me/m/?format=json").body)["entries"]} == {"a", "b"}
