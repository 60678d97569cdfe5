"""An origin that says more than what its bytes are: header fields that a browser, or a proxy in front of the mirror, would obey."""
import json
import subprocess
import urllib.parse

import pytest

from harness.mirrord import BUILD, SLOW
from harness.python_index import Index

HOSTILE = {
    "X-Accel-Redirect": "/internal/secret", "X-Accel-Buffering": "no", "X-Sendfile": "/etc/passwd", "X-Lighttpd-Send-File": "/etc/passwd",
    "X-Reproxy-URL": "http://127.0.0.1/", "Service-Worker-Allowed": "/", "Clear-Site-Data": '"*"', "Refresh": "0; url=https://evil.example/",
    "Access-Control-Allow-Origin": "*", "Access-Control-Allow-Credentials": "true", "Content-Security-Policy": "default-src *",
    "Content-Security-Policy-Report-Only": "default-src *; report-uri https://evil.example/", "Set-Cookie": "a=b", "Set-Cookie2": "a=b",
    "Strict-Transport-Security": "max-age=31536000", "NEL": '{"report_to":"x"}', "Report-To": '{"group":"x"}', "Reporting-Endpoints": 'x="https://evil.example/"',
    "Alt-Svc": 'h3="evil.example:443"', "Public-Key-Pins": "max-age=31536000", "Link": "<https://evil.example/x.css>; rel=stylesheet",
    "Location": "https://evil.example/", "WWW-Authenticate": "Basic realm=x", "Cross-Origin-Resource-Policy": "cross-origin", "SourceMap": "https://evil.example/",
    "Permissions-Policy": "camera=*", "Origin-Trial": "x", "Speculation-Rules": '"/x"', "X-Content-Type-Options": "none", "X-Anything": "at all",
    "Timing-Allow-Origin": "*", "Server": "evil", "Via": "1.1 evil", "X-Request-Id": "evil", "X-Permitted-Cross-Domain-Policies": "all"}
USEFUL = {"Content-Language": "de", "ETag": '"mine"', "X-Repo-Commit": "0123abc", "X-Linked-Size": "77", "X-Error-Code": "GatedRepo", "X-PyPI-Last-Serial": "17",
          "Docker-Content-Digest": "sha256:00", "Vary": "Accept"}
OURS = {"x-content-type-options": "nosniff", "server": "mirrord"}


def is_harmless(reply):
    """Nothing of the origin's hostile words is left; where we say something by the same name, it is ours."""
    for name, value in HOSTILE.items():
        assert reply[name] != value, (name, reply.headers)
        if name.lower() not in ("x-content-type-options", "content-security-policy", "server", "x-request-id"):
            assert reply[name] is None, (name, reply.headers)
    assert "evil" not in str(reply.headers)
    assert {n: reply[n] for n in OURS} == OURS


CONFIG = """cache {{ default_ttl = 0s }}
    repo "data" {{ protocol = "generic" origin = "{url}/" {more} rule '.' {{ refresh_floor = 0s }} }}"""


@pytest.fixture
def data(mirrord, origin):
    m = mirrord(CONFIG.format(url=origin.url, more=""))
    m.origin = origin
    return m


def hostile_parts():
    """Few at a time: what is kept of an answer has a bound, and a fault must not hide behind it."""
    items = list(HOSTILE.items())
    return ["|".join(f"{n}: {v}" for n, v in items[i:i + 12]) for i in range(0, len(items), 12)]


def test_of_an_object(data, wire):
    for i, part in enumerate(hostile_parts()):
        data.origin.put(f"/{i}", size=1000, fields=f"Cache-Control: max-age=600|{part}")
        first = data.get(f"/data/{i}", wire)  # while it comes, and then out of the store
        data.settle()
        for reply in (first, data.get(f"/data/{i}", wire), data.get(f"/data/{i}", wire, head=True), data.get(f"/data/{i}", wire, headers={"Range": "bytes=5-9"}),
                      data.get(f"/data/{i}", wire, headers={"Range": "bytes=5000-"}), data.get(f"/data/{i}", wire, headers={"If-None-Match": first["etag"]}),
                      data.get(f"/data/{i}", wire, headers={"If-Match": '"other"'})):
            is_harmless(reply)


def test_of_a_head_that_the_origin_was_asked_for(data, wire):
    for i, part in enumerate(hostile_parts()):
        data.origin.put(f"/{i}", size=1000, fields=part)
        is_harmless(data.get(f"/data/{i}", wire, head=True))


def test_what_clients_need_is_passed_on(data, wire):
    data.origin.put("/n", size=1000, etag="none", fields="Cache-Control: max-age=600|" + "|".join(f"{n}: {v}" for n, v in USEFUL.items()))
    for _ in range(2):
        reply = data.get("/data/n", wire)
        assert {n: reply[n] for n in USEFUL} == USEFUL and reply["cache-control"] == "max-age=600" and reply["last-modified"]


def test_of_a_304(data, wire):
    thing = data.origin.put("/n", size=1000, fields="Cache-Control: max-age=0")
    assert data.get("/data/n", wire).status == 200
    for part in hostile_parts():
        data.settle()
        thing.fields = f"Cache-Control: max-age=0|{part}"
        was = thing.not_modified
        is_harmless(data.get("/data/n", wire))
        assert thing.not_modified == was + 1


@pytest.mark.parametrize("status", [203, 301, 401, 403, 404, 410, 418, 451, 500, 503])
def test_of_what_is_no_object(data, status):
    for i, part in enumerate(hostile_parts()):
        data.origin.put(f"/{i}", status=status, words="<script>evil()</script>", type="text/html", fields=part)
        for _ in range(2):
            reply = data.get(f"/data/{i}")
            assert reply.status in (status, 502)
            is_harmless(reply)


def test_of_a_trailer(data, wire):
    for i, part in enumerate(hostile_parts()):
        data.origin.put(f"/{i}", size=1000, chunked=True, trailers=f"{part}|X-Repo-Commit: late", fields="Cache-Control: max-age=600|Trailer: X-Accel-Redirect")
        for _ in range(2):
            reply = data.get(f"/data/{i}", wire)
            is_harmless(reply)
            assert reply.body == data.origin.bytes_of(f"/{i}") and reply["x-repo-commit"] is None and reply["trailer"] is None
            data.settle()


def test_of_rows_that_were_stored_when_more_was_let_through(mirrord, origin):
    """Rows keep what the origin said, those of older versions too: what reaches a client is decided when it is answered."""
    m = mirrord(CONFIG.format(url=origin.url, more='pass_headers = {"X-Anything", "X-Build-*"}'))
    thing = origin.put("/n", size=1000, fields=f"Cache-Control: max-age=600|X-Build-Id: 7|X-Anything: at all|{hostile_parts()[0]}")
    for _ in range(2):
        reply = m.get("/data/n")
        assert (reply["x-anything"], reply["x-build-id"], reply["x-accel-redirect"]) == ("at all", "7", None)
        m.settle()
    m.stop()
    m.config = CONFIG.format(url=origin.url, more="")
    m.start()
    reply = m.get("/data/n")
    is_harmless(reply)
    assert reply.status == 200 and reply["x-build-id"] is None and thing.requests == 1


def test_of_a_forward_repo(mirrord, origin):
    m = mirrord(CONFIG.format(url=origin.url, more='forward = {"Accept"}'))
    for i, part in enumerate(hostile_parts()):
        origin.put(f"/{i}", size=1000, by="Accept", fields=f"Cache-Control: max-age=600|Vary: Accept|{part}")
        for accept in ("text/html", "text/html", "a/b"):
            is_harmless(m.get(f"/data/{i}", headers={"Accept": accept}))
            m.settle()


def test_of_an_index_and_its_files(mirrord):
    with Index() as index:
        index.wheel("demo", "1.0")
        index.publish()
        for path, thing in index.origin.things.items():
            thing.fields = "|".join(filter(None, [thing.fields, hostile_parts()[0]]))
        m = mirrord(f'repo "pypi" {{ protocol = "pypi" origin = "{index.url}" }}')
        page = m.get("/pypi/simple/demo/", headers={"Accept": "application/vnd.pypi.simple.v1+json"})
        assert page.status == 200, page.body
        is_harmless(page)
        file = json.loads(page.body)["files"][0]["url"]
        for _ in range(2):
            reply = m.get(urllib.parse.urlsplit(urllib.parse.urljoin(m.url("/pypi/simple/demo/"), file)).path)
            assert reply.status == 200
            is_harmless(reply)
            m.settle()


@pytest.mark.parametrize("name", ["X-Accel-Redirect", "x-*", "*", "Access-Control-Allow-Origin", "Content-*", "Set-Cookie", "X-Sendfile-Type", "Location", "a b", ""])
def test_no_repo_lets_the_dangerous_ones_through(tmp_path, name):
    """Refused with file, line, what, why and what to do, before anything is served."""
    conf = tmp_path / "mirrord.conf"
    conf.write_text(f'state_dir = "{tmp_path}"\nlisten "127.0.0.1:1" {{ }}\n' + CONFIG.format(url="http://127.0.0.1:1", more=f'pass_headers = {{"{name}"}}'))
    run = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True, check=False, timeout=60 * SLOW)
    assert run.returncode == 78 and f'pass_headers = {{"{name}"}}' in run.stderr and "remove it from the list" in run.stderr
