"""The Python index protocol on a fixture index: HTML and JSON both ways, links that lead here, hashes that bind."""
import hashlib
import json
import re
import urllib.parse

import pytest

from harness.origin import Origin

WHEEL = "demo_pkg-1.0-py3-none-any.whl"
SDIST = "demo_pkg-1.0.tar.gz"
JSON = "application/vnd.pypi.simple.v1+json"
HTML = "application/vnd.pypi.simple.v1+html"


@pytest.fixture
def files():
    """The host that the index names for its files: another one, as in the real world."""
    with Origin(host="127.0.0.2") as o:
        o.put("/f/" + WHEEL, size=3 << 20, seed=1)
        o.put("/f/" + WHEEL + ".metadata", body=b"Metadata-Version: 2.1\nName: demo-pkg\nVersion: 1.0\n")
        o.put("/f/" + SDIST, size=5000, seed=2)
        yield o


def page_html(files, wrong=False):
    rows = []
    for name, more in ((WHEEL, ' data-requires-python="&gt;=3.8" data-dist-info-metadata="true" data-core-metadata="true"'),
                       (SDIST, ' data-yanked="broken"')):
        digest = "0" * 64 if wrong else files.sha256("/f/" + name)
        rows.append(f'<a href="{files.url}/f/{name}#sha256={digest}"{more}>{name}</a><br/>')
    return ('<!DOCTYPE html><html><head><meta name="pypi:repository-version" content="1.0"/></head><body>'
            + "\n".join(rows) + "</body></html>").encode()


def page_json(files):
    entries = [{"filename": WHEEL, "url": f"{files.url}/f/{WHEEL}", "hashes": {"sha256": files.sha256("/f/" + WHEEL)},
                "requires-python": ">=3.8", "core-metadata": True, "dist-info-metadata": True, "size": 3 << 20,
                "upload-time": "2024-01-01T00:00:00Z", "yanked": False},
               {"filename": SDIST, "url": f"../../f2/{SDIST}", "hashes": {"sha256": files.sha256("/f/" + SDIST)},
                "size": 5000, "yanked": "broken"}]
    return json.dumps({"meta": {"api-version": "1.1"}, "name": "demo-pkg", "versions": ["1.0"], "files": entries}).encode()


@pytest.fixture(params=["html", "json"])
def upstream(request, origin, files):
    """An index that speaks HTML, or JSON."""
    if request.param == "html":
        origin.put("/simple/demo-pkg/", body=page_html(files), type="text/html")
    else:
        origin.put("/simple/demo-pkg/", body=page_json(files), type=JSON)
        origin.put(f"/f2/{SDIST}", size=5000, seed=2)
    return origin


@pytest.fixture
def pypi(mirrord, upstream, files):
    m = mirrord(f"""repo "pypi" {{ protocol = "pypi" origin = "{upstream.url}/" hosts = {{"127.0.0.2:{files.port}"}} }}""")
    m.origin = upstream
    return m


def links(m, wire, accept):
    """name -> (absolute URL path on m, digest), from either rendering."""
    reply = m.get("/pypi/simple/demo-pkg/", wire, headers={"Accept": accept})
    assert reply.status == 200 and reply["content-type"].split(";")[0] == accept
    if accept == JSON:
        found = [(f["filename"], f["url"], f["hashes"]["sha256"]) for f in json.loads(reply.body)["files"]]
    else:
        found = [(text, *href.split("#sha256=")) for href, text in
                 re.findall(r'<a[^>]*?href="([^"]*)"[^>]*>([^<]*)</a>', reply.body.decode())]
    here = m.url("/pypi/simple/demo-pkg/", wire)
    out = {}
    for name, url, digest in found:
        full = urllib.parse.urljoin(here, url)
        assert full.startswith(m.url("/pypi/", wire)), f"{url} leads past the mirror"
        out[name] = (full[len(m.url("", wire)):].split("#")[0], digest)
    return out


@pytest.mark.parametrize("accept", [HTML, JSON], ids=["as-html", "as-json"])
def test_index_and_files(pypi, wire, files, accept):
    found = links(pypi, wire, accept)
    assert set(found) == {WHEEL, SDIST}
    for name, (path, digest) in found.items():
        assert digest == files.sha256("/f/" + name)
        reply = pypi.get(path, wire)
        assert hashlib.sha256(reply.body).hexdigest() == digest
    asked = files.requests + pypi.origin.requests
    for path, _ in found.values():
        assert pypi.get(path, wire).whole
    links(pypi, wire, accept)
    assert files.requests + pypi.origin.requests == asked, "warm, but the origin was asked"


def test_facts_survive_the_rewrite(pypi, wire):
    page = json.loads(pypi.get("/pypi/simple/demo-pkg/", wire, headers={"Accept": JSON}).body)
    by_name = {f["filename"]: f for f in page["files"]}
    assert by_name[WHEEL]["requires-python"] == ">=3.8" and by_name[WHEEL]["core-metadata"]
    assert by_name[SDIST]["yanked"] == "broken"
    html = pypi.get("/pypi/simple/demo-pkg/", wire, headers={"Accept": HTML}).body.decode()
    assert "data-requires-python=" in html and 'data-yanked="broken"' in html and "data-core-metadata=" in html


def test_metadata_beside_the_wheel(pypi, wire):
    path, _ = links(pypi, wire, JSON)[WHEEL]
    assert pypi.get(path + ".metadata", wire).body.startswith(b"Metadata-Version")


def test_head_and_ranges_on_a_cold_wheel(pypi, wire, files):
    """What pip's fast-deps does: HEAD, then ranges from the end."""
    path, _ = links(pypi, wire, JSON)[WHEEL]
    head = pypi.get(path, wire, head=True)
    assert (head.status, head["content-length"], head["accept-ranges"]) == (200, str(3 << 20), "bytes")
    tail = pypi.get(path, wire, headers={"Range": "bytes=-1000"})
    assert tail.status == 206 and tail.body == files.bytes_of("/f/" + WHEEL, (3 << 20) - 1000)


def test_wrong_bytes_are_refused(mirrord, origin, files, wire):
    origin.put("/simple/demo-pkg/", body=page_html(files, wrong=True), type="text/html")
    m = mirrord(f"""repo "pypi" {{ protocol = "pypi" origin = "{origin.url}/" hosts = {{"127.0.0.2:{files.port}"}} }}""")
    for name, (path, _) in links(m, wire, HTML).items():
        reply = m.get(path, wire)
        assert reply.status >= 500 or not reply.whole, f"{name} has other bytes than its index says"


def test_names_are_normalized(pypi, wire):
    reply = pypi.get("/pypi/simple/Demo.Pkg/", wire)
    assert reply.status == 200 or (reply.status in (301, 302, 307, 308) and reply["location"].endswith("demo-pkg/"))


def test_no_such_project(pypi, wire):
    assert pypi.get("/pypi/simple/no-such-project/", wire).status == 404


def test_cache_ls_knows_files_by_their_keys(pypi, files):
    """A file's key has its host where the path has a link's id: no request spells it, and it is kept for good all the same."""
    pypi.get(links(pypi, "h1", HTML)[WHEEL][0])
    pypi.settle()
    kept = {r["key"]: r["state"] for r in pypi.ctl_json("cache", "ls", "pypi")}
    assert kept == {f"+f/{files.url}/f/{WHEEL}": "immutable", "simple/demo-pkg/": "fresh"}
    assert pypi.ctl_json("cache", "rm", f"pypi/+f/{files.url}/f/{WHEEL}")["removed"] == 1


def test_files_survive_a_restart_without_the_origin(pypi, files, origin):
    found = links(pypi, "h1", JSON)
    bodies = {path: pypi.get(path).body for path, _ in found.values()}
    pypi.settle()
    pypi.stop()
    files.close()
    origin.close()
    pypi.start()
    for path, body in bodies.items():
        assert pypi.get(path).body == body


def test_a_host_that_nobody_admits(mirrord, origin, files, wire):
    """The index comes in clear text, so it may not name other hosts; a link to one must not be a way inside."""
    origin.put("/simple/demo-pkg/", body=page_html(files), type="text/html")
    m = mirrord(f"""repo "pypi" {{ protocol = "pypi" origin = "{origin.url}/" }}""")
    reply = m.get("/pypi/simple/demo-pkg/", wire, headers={"Accept": JSON})
    if reply.status == 200:
        for f in json.loads(reply.body)["files"]:
            path = urllib.parse.urljoin(m.url("/pypi/simple/demo-pkg/", wire), f["url"])[len(m.url("", wire)):]
            assert m.get(path, wire).status >= 400
    assert files.requests == 0


def test_a_page_that_changes_while_it_comes_is_read_again(mirrord, origin, files):
    origin.put("/simple/demo-pkg/", body=page_html(files), type="text/html", die_at=50, times=1, change_after=1)
    m = mirrord(f"""repo "pypi" {{ protocol = "pypi" origin = "{origin.url}/" hosts = {{"127.0.0.2:{files.port}"}} }}""")
    r = m.get("/pypi/simple/demo-pkg/")
    assert r.status == 200 and WHEEL.encode() in r.body
    assert origin.stats("/simple/demo-pkg/").requests == 3


def test_a_page_that_breaks_off_leaves_the_old_one(mirrord, origin, files):
    origin.put("/simple/demo-pkg/", body=page_html(files), type="text/html", fields="Cache-Control: max-age=0")
    m = mirrord(f"""cache {{ tries = 1 }}
        repo "pypi" {{ protocol = "pypi" origin = "{origin.url}/" hosts = {{"127.0.0.2:{files.port}"}} }}""")
    assert m.get("/pypi/simple/demo-pkg/").status == 200
    m.settle()
    origin.put("/simple/demo-pkg/", body=page_html(files), type="text/html", etag="new", short=50)
    r = m.get("/pypi/simple/demo-pkg/")
    assert r.status == 200 and WHEEL.encode() in r.body and "stale" in r["cache-status"]


# --- several pages that name one file ---------------------------------------------------------------------------------

def page_of(files, name, sha256, size=None):
    entry = {"filename": name, "url": f"{files.url}/f/{name}", "hashes": {"sha256": sha256} if sha256 else {}, "yanked": False}
    if size:
        entry["size"] = size
    return json.dumps({"meta": {"api-version": "1.1"}, "name": "demo-pkg", "files": [entry]}).encode()


@pytest.fixture
def pages(mirrord, origin, files):
    """put(page, sha256, size) at the origin, read(page) -> path of the sdist on the mirror."""
    m = mirrord(f"""cache {{ tries = 1 }}
        repo "pypi" {{ protocol = "pypi" origin = "{origin.url}/" hosts = {{"127.0.0.2:{files.port}"}}
                       rule '/$' {{ ttl = 0s }} }}""")

    def put(page, sha256, size=None):
        origin.put(f"/{page}/demo-pkg/", body=page_of(files, SDIST, sha256, size), type=JSON, etag=f'"{page}{sha256}"')

    def read(page):
        here = m.url(f"/pypi/{page}/demo-pkg/")
        found = json.loads(m.get(f"/pypi/{page}/demo-pkg/", headers={"Accept": JSON}).body)["files"]
        return urllib.parse.urljoin(here, found[0]["url"])[len(m.url("")):]

    m.put_page, m.read_page = put, read
    return m


def refused(reply):
    return reply.status >= 500 or not reply.whole


def test_a_page_that_omits_a_digest_takes_none_away(pages, files):
    pages.put_page("simple", files.sha256("/f/" + SDIST))
    pages.put_page("silent", None, 5000)
    told, silent = pages.read_page("simple"), pages.read_page("silent")
    files.put("/f/" + SDIST, size=5000, seed=2, flip_at=77)
    assert refused(pages.get(silent)) and refused(pages.get(told))
    files.put("/f/" + SDIST, size=5000, seed=2)
    pages.stop()  # the origin's trouble is forgotten, the facts are not
    pages.start()
    for path in (silent, told):
        assert pages.get(path).body == files.bytes_of("/f/" + SDIST)
    assert files.stats("/f/" + SDIST).requests == 1, "one file, fetched twice"


@pytest.mark.parametrize("first", ["simple", "liar"])
def test_a_lying_page_harms_its_own_readers_alone(pages, files, first):
    pages.put_page("simple", files.sha256("/f/" + SDIST))
    pages.put_page("liar", "0" * 64)
    pages.put_page("silent", None)
    paths = {page: pages.read_page(page) for page in (first, "simple", "liar", "silent")}
    for page in (first, "liar", "simple", "silent", "liar", "simple"):
        reply = pages.get(paths[page])
        assert refused(reply) if page == "liar" else reply.body == files.bytes_of("/f/" + SDIST), page


def test_a_page_that_tells_another_digest_is_believed(pages, files):
    """The file was uploaded anew under its old name: what was resolved before is void."""
    pages.put_page("simple", files.sha256("/f/" + SDIST))
    path = pages.read_page("simple")
    for _ in range(2):
        assert pages.get(path).body == files.bytes_of("/f/" + SDIST)
    pages.settle()  # else the next may still share those very answers
    files.put("/f/" + SDIST, size=6000, seed=3)
    pages.put_page("simple", files.sha256("/f/" + SDIST))
    assert pages.read_page("simple") == path
    assert pages.get(path).body == files.bytes_of("/f/" + SDIST)
