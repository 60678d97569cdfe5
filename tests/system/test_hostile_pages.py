"""Pages of an origin or an upload in a browser: they must not act for their reader on the mirror's other repos."""
import base64
import itertools
import subprocess
import urllib.error
import urllib.request

import pytest

from harness.mirrord import SLOW
from harness.python_index import Index

SANDBOX = "sandbox allow-downloads"
SAVED = ["text/html", "Text/HTML; charset=utf-8", "application/xhtml+xml", "image/svg+xml", "text/xml", "application/rss+xml", "application/pdf",
         "multipart/related; boundary=x", "message/rfc822"]
SHOWN = ["text/plain", "application/json", "image/png", "text/css", "application/gzip"]


def open_to_all(mirrord, origin):
    m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" }}
                    repo "home" {{ protocol = "hosted" access {{ anonymous = read }} }}""")
    m.origin = origin
    return m


@pytest.fixture
def data(mirrord, origin):
    return open_to_all(mirrord, origin)


@pytest.fixture(scope="module")
def shared_data(shared_mirrord, shared_origin):
    return open_to_all(shared_mirrord, shared_origin)


def is_sandboxed(reply):
    assert (reply["content-security-policy"], reply["x-content-type-options"]) == (SANDBOX, "nosniff")


@pytest.mark.parametrize("number, type_", list(enumerate(SAVED + SHOWN)))
def test_what_is_saved_and_what_is_shown(shared_data, number, type_):
    shared_data.origin.put(f"/x{number}", body=b"<script>evil()</script>", type=type_)
    for headers in ({}, {}, {"Range": "bytes=0-3"}):
        reply = shared_data.get(f"/data/x{number}", headers=headers)
        is_sandboxed(reply)
        assert (reply["content-type"], reply["content-disposition"]) == (type_, "attachment" if type_ in SAVED else None)
        shared_data.settle()


def test_a_saved_file_keeps_its_name(data):
    data.origin.put("/x", body=b"<p>", type="text/html", fields='Content-Disposition: inline; filename="report.html"')
    assert data.get("/data/x")["content-disposition"] == 'attachment; filename="report.html"'
    data.origin.put("/y", body=b"x", type="text/plain", fields='Content-Disposition: inline; filename="y.txt"')
    assert data.get("/data/y")["content-disposition"] == 'inline; filename="y.txt"'


def test_a_folders_page_is_shown_in_the_sandbox(data, wire):
    data.origin.put("/pub/", body=b'<a href="x.tgz">x.tgz</a>', type="text/html")
    data.origin.put("/pub/x/", body=b"<svg/>", type="image/svg+xml")
    for reply in (data.get("/data/pub/", wire), data.get("/data/pub/?C=M;O=A", wire), data.get("/data/pub/", wire, head=True)):
        is_sandboxed(reply)
        assert reply["content-disposition"] is None
    assert data.get("/data/pub/x/", wire)["content-disposition"] == "attachment"


def test_every_answer_that_is_no_page_of_ours(data, wire):
    """Blobs by digest, parts, 304, refusals of every kind: what nobody thought of is sandboxed as well."""
    data.origin.put("/x", size=1000, type="text/html")
    etag = data.get("/data/x", wire)["etag"]
    data.origin.put("/gone", status=404, words="<script>evil()</script>", type="text/html")
    tag = {"If-None-Match": etag}
    for path, headers, status in (("/data/x", tag, 304), ("/data/x", {"If-Match": '"y"'}, 412), ("/data/x", {"Range": "bytes=9999-"}, 416), ("/data/gone", {}, 404),
                                  ("/data/../x", {}, 400), ("/nowhere", {}, 404), ("/healthz", {}, 200), ("/metrics", {}, 200), ("/-/status.json", {}, 200),
                                  ("/-/blob/" + "0" * 64, {}, 404), ("/v2/", {}, 401), ("/home/models/me/x/y", {}, 404)):
        reply = data.get(path, wire, headers=headers)
        assert reply.status == status, path
        is_sandboxed(reply)
    is_sandboxed(data.get("/data/x", wire, method="DELETE"))
    if wire == "h1":
        assert data.get("/data/x", wire, args=["-H", "Host: a b"])["x-content-type-options"] == "nosniff"  # not even a request


def test_pages_of_ours_have_a_policy_of_their_own(mirrord):
    with Index() as index:
        index.wheel("demo", "1.0")
        index.publish()
        m = mirrord(f"""repo "pypi" {{ protocol = "pypi" origin = "{index.url}" }}
                        repo "home" {{ protocol = "hosted" access {{ anonymous = read }} }}""")
        token = m.token("t", "publish:home/*")
        assert m.get("/home/models/me/x/page.html", method="PUT", data=b"<script>evil()</script>", headers={"Authorization": f"Bearer {token}"}).status == 201
        for path in ("/", "/home/models/me/x/", "/pypi/simple/demo/"):
            for reply in (m.get(path, headers={"Accept": "text/html"}), m.get(path, headers={"Accept": "text/html"}, head=True)):
                policy = reply["content-security-policy"]
                assert reply.status == 200 and reply["content-type"].startswith("text/html"), path
                assert policy.startswith("default-src 'none';") and "unsafe" not in policy and "frame-ancestors 'none'" in policy and "base-uri 'none'" in policy
                assert reply["x-content-type-options"] == "nosniff"
        reply = m.get("/home/models/me/x/page.html")
        is_sandboxed(reply)
        assert reply["content-type"] == "application/octet-stream"


# --- a reader who has logged in ------------------------------------------------------------------------------------------------


def closed(mirrord, origin):
    m = mirrord(f"""repo "a" {{ protocol = "generic" origin = "{origin.url}/" access {{ anonymous = none }} }}
                    repo "b" {{ protocol = "hosted" access {{ anonymous = none }} }}""")
    m.origin = origin
    m.reader = m.token("reader", "read:a/*", "publish:b/*")
    m.login = {"Authorization": "Basic " + base64.b64encode(f"x:{m.reader}".encode()).decode()}
    m.get("/b/models/me/x/secret.txt", method="PUT", data=b"the secret of b", headers=m.login)
    return m


@pytest.fixture
def private(mirrord, origin):
    return closed(mirrord, origin)


@pytest.fixture(scope="module")
def shared_private(shared_mirrord, shared_origin):
    return closed(shared_mirrord, shared_origin)


def challenges(m, path, **kw):
    """Of the raw head: the harness keeps the last of a repeated field."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(urllib.request.Request(m.url(path), **kw)) as r:
        return r.status, r.headers.get_all("WWW-Authenticate")


@pytest.mark.parametrize("path, headers", [("/a/x", {}), ("/b/models/me/x/y", {}), ("/-/logout", {}), ("/a/x", {"Authorization": "Bearer mrd_no"})])
def test_a_401_asks_in_fields_of_their_own(shared_private, path, headers):
    with pytest.raises(urllib.error.HTTPError) as refused:
        challenges(shared_private, path, headers=headers)
    assert refused.value.code == 401
    assert refused.value.headers.get_all("WWW-Authenticate") == ['Basic realm="mirrord"'] + ["Bearer"] * (path != "/-/logout")


def test_logging_out(shared_private, wire):
    reply = shared_private.get("/-/logout", wire, headers=shared_private.login)
    assert reply.status == 401 and reply["www-authenticate"] == 'Basic realm="mirrord"' and reply["cache-control"] == "no-store"
    assert b"You are logged out" in reply.body
    assert b'href="/-/logout"' in shared_private.get("/", wire, headers=shared_private.login).body
    assert b"logout" not in shared_private.get("/", wire).body


ELSEWHERE = [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"},
             {"Sec-Fetch-Site": "cross-site", "Origin": "{ours}"}]
names = itertools.count()  # of files that are new
HERE = [{}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": "{ours}"}]


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH"])
@pytest.mark.parametrize("says", ELSEWHERE)
def test_a_page_of_another_site_cannot_write(shared_private, method, says, wire):
    says = {n: v.format(ours=shared_private.url("", wire)) for n, v in says.items()}
    reply = shared_private.get("/b/models/me/x/secret.txt", wire, method=method, data=b"changed", headers={**shared_private.login, **says})
    assert reply.status == 403 and b"refused: a web page of another site" in reply.body
    assert shared_private.get("/b/models/me/x/secret.txt", wire, headers={**shared_private.login, **says}).body == b"the secret of b"


@pytest.mark.parametrize("says", HERE)
def test_pages_of_ours_and_programs_can(shared_private, says, wire):
    name = next(names)
    says = {n: v.format(ours=shared_private.url("", wire)) for n, v in says.items()}
    assert shared_private.get(f"/b/models/me/x/{name}/new.txt", wire, method="PUT", data=b"new", headers={**shared_private.login, **says}).status == 201
    bearer = {"Authorization": f"Bearer {shared_private.reader}", "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}  # no browser sends it by itself
    assert shared_private.get(f"/b/models/me/x/{name}/more.txt", wire, method="PUT", data=b"new", headers=bearer).status == 201


HOSTILE = """<title>a page</title><p id=out>not run</p><script>
const out = document.getElementById("out");
const say = (what) => fetch("/a/said?" + what);
fetch("/b/models/me/x/secret.txt").then((r) => r.text()).then((t) => { out.textContent = "read: " + t; say("read") });
fetch("/b/models/me/x/secret.txt", {method: "PUT", body: "owned"});
out.textContent = "run"; say("run");
</script>"""


def test_in_chromium_a_page_of_one_repo_cannot_touch_another(private, client, tmp_path):
    """The browser logs in by the challenge (it takes a name from the address only when it is asked), and shows the page, but runs nothing."""
    chromium = client("chromium")
    private.origin.put("/", body=HOSTILE.encode(), type="text/html")
    run = subprocess.run([chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server",
                          f"--user-data-dir={tmp_path}/chromium", f"--timeout={60000 * SLOW}", "--dump-dom",
                          f"http://x:{private.reader}@127.0.0.1:{private.port}/a/"],
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300 * SLOW)
    private.answered('"/a/"', status=200)  # it logged in
    assert "not run</p>" in run.stdout and "the secret of b" not in run.stdout, run.stderr
    assert private.get("/b/models/me/x/secret.txt", headers=private.login).body == b"the secret of b"
    assert "/a/said" not in private.access_log.read_text()
