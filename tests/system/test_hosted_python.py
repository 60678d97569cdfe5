"""Python packages in a hosted repo: forms as upload clients send them, pages as installers read them, and what goes wrong on the way."""
import base64
import concurrent.futures
import hashlib
import json
import os
import random
import re
import socket
import threading

import pytest

from harness.mirrord import until
from harness.python_dist import fields, form, metadata, sdist, wheel
from system.test_full_disk import fill_up, small_disk  # noqa: F401

CONFIG = 'repo "models" { protocol = "hosted" }'
JSON = "application/vnd.pypi.simple.v1+json"


@pytest.fixture
def index(mirrord):
    m = mirrord(CONFIG)
    m.publisher = m.token("ci", "publish:models/simple/*")
    return m


def post(m, values, wire="h1", token=None, path="/models/legacy/", headers=None, folder=None, **kw):
    """The form by curl. values: fields, or (Content-Type, body)."""
    kind, body = values if isinstance(values, tuple) else form(values, **kw)
    at = (folder or m.folder) / f"form-{threading.get_ident()}-{random.random()}"
    at.write_bytes(body)
    token = m.publisher if token is None else token
    fields_ = {"Content-Type": kind, **({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
    try:
        return m.get(path, wire, method="POST", headers=fields_, args=["--data-binary", f"@{at}"])
    finally:
        at.unlink()


def bring(m, name, version, wire="h1", token=None, **kw):
    file, data = wheel(name, version, **kw)
    reply = post(m, fields(file, data, name, version), wire, token)
    assert reply.status == 200, reply.body
    return file, data


def page(m, name, version="", wire="h1", **kw):
    reply = m.get(f"/models/simple/{name}{version}/", wire, headers={"Accept": JSON, **kw})
    return json.loads(reply.body) if reply.status == 200 else reply.status


def names(m, name, version=""):
    got = page(m, name, version)
    return [f["filename"] for f in got["files"]] if isinstance(got, dict) else []


# --- what is brought shows ---


def test_an_upload_shows_at_once(index, wire):
    m = index
    assert m.get("/models/simple/demo-pkg/", wire).status == 404
    file, data = bring(m, "Demo_Pkg", "1.0", wire, requires_python=">=3.8,<4")
    got = page(m, "demo-pkg", wire=wire)
    meta = metadata("Demo_Pkg", "1.0", ">=3.8,<4").encode()
    one, = got["files"]
    assert got["meta"] == {"api-version": "1.1"} and got["name"] == "demo-pkg" and got["versions"] == ["1.0"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", one.pop("upload-time"))
    digest = {"sha256": hashlib.sha256(meta).hexdigest()}
    assert one == {"filename": file, "url": f"./{file}", "hashes": {"sha256": hashlib.sha256(data).hexdigest()}, "size": len(data),
                   "requires-python": ">=3.8,<4", "core-metadata": digest, "dist-info-metadata": digest, "yanked": False}
    html = m.get("/models/simple/demo-pkg/", wire, headers={"Accept": "text/html"})
    assert html["content-type"] == "text/html" and html["vary"] == "accept" and html["cache-control"] == "no-cache"
    assert f'href="./{file}#sha256={hashlib.sha256(data).hexdigest()}"'.encode() in html.body
    assert b'data-requires-python="&gt;=3.8,&lt;4"' in html.body
    listed = json.loads(m.get("/models/simple/", wire, headers={"Accept": JSON}).body)
    assert listed == {"meta": {"api-version": "1.1"}, "projects": [{"name": "demo-pkg"}]}
    got = m.get(f"/models/simple/demo-pkg/{file}", wire)
    assert (got.status, got.body, got["cache-control"]) == (200, data, "max-age=365000000, immutable, public")
    assert m.get(f"/models/simple/demo-pkg/{file}.metadata", wire).body == meta


def test_a_page_has_one_tag_until_a_file_comes(index, wire):
    m = index
    bring(m, "demo", "1.0", wire)
    first = m.get("/models/simple/demo/", wire, headers={"Accept": JSON})
    tag = first["etag"]
    assert tag.startswith('"')
    again = m.get("/models/simple/demo/", wire, headers={"Accept": JSON, "If-None-Match": tag})
    assert again.status == 304 and not again.body
    assert m.get("/models/simple/demo/", wire, headers={"Accept": "text/html"})["etag"] != tag
    bring(m, "demo", "1.1", wire)
    second = m.get("/models/simple/demo/", wire, headers={"Accept": JSON, "If-None-Match": tag})
    assert second.status == 200 and second["etag"] != tag and json.loads(second.body)["versions"] == ["1.0", "1.1"]


def test_the_order_of_versions_and_of_fields(index):
    m = index
    r = random.Random(7)
    for version in ("1.10", "1.9", "2.0rc1", "1!0.1", "2.0", "1.9+local.1"):
        file, data = wheel("demo", version)
        values = fields(file, data, "demo", version, attestations="[{}]", classifiers="A :: B", description="x" * 100000)
        order = list(values)
        r.shuffle(order)
        reply = post(m, values, order=order)
        assert reply.status == 200, (order, reply.body)
    assert page(m, "demo")["versions"] == ["1.9", "1.9+local.1", "1.10", "2.0rc1", "2.0", "1!0.1"]
    local = next(f for f in page(m, "demo")["files"] if "+" in f["filename"])
    assert "%2B" in local["url"] and m.get(f"/models/simple/demo/{local['url'][2:]}").status == 200
    assert m.get(f"/models/simple/demo/{local['filename']}").status == 200


def test_a_source_archive(index):
    m = index
    file, data = sdist("demo", "1.0")
    assert post(m, fields(file, data, "demo", "1.0", requires_python=">=3.7")).status == 200
    one, = page(m, "demo")["files"]
    assert one["requires-python"] == ">=3.7" and "core-metadata" not in one
    assert m.get(f"/models/simple/demo/{file}.metadata").status == 404
    assert m.get(f"/models/simple/demo/{file}").body == data


def test_a_signature_comes_along(index):
    m = index
    file, data = wheel("demo", "1.0")
    assert post(m, fields(file, data, "demo", "1.0", gpg_signature=(f"{file}.asc", b"-----BEGIN"))).status == 200
    assert page(m, "demo")["files"][0]["gpg-sig"] is True
    assert m.get(f"/models/simple/demo/{file}.asc").body == b"-----BEGIN"


def test_what_is_brought_stays_over_a_kill(index):
    m = index
    file, data = bring(m, "demo", "1.0")
    m.kill()
    m.start()
    assert names(m, "demo") == [file] and m.get(f"/models/simple/demo/{file}").body == data


# --- twice, and by several ---


def test_the_same_file_again(index, wire):
    m = index
    file, data = bring(m, "demo", "1.0", wire)
    before = page(m, "demo")
    assert post(m, fields(file, data, "demo", "1.0"), wire).status == 200
    other = wheel("demo", "1.0", requires_python=">=3.9")[1]
    refused = post(m, fields(file, other, "demo", "1.0"), wire)
    assert refused.status == 409 and refused.body.startswith(b"File already exists") and refused["content-type"].startswith("text/plain")
    refused = post(m, fields(file, other, "demo", "1.0"), wire, headers={"Accept": "application/problem+json, text/plain;q=0.5"})
    problem = json.loads(refused.body)
    assert refused["content-type"] == "application/problem+json" and refused.status == problem["status"] == 409
    assert problem["detail"].startswith("File already exists")
    assert page(m, "demo") == before and m.get(f"/models/simple/demo/{file}").body == data
    assert len(m.ctl_json("snapshot", "ls", "models", "simple/demo")) == 1


def at_once(calls):
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [f.result() for f in [pool.submit(c) for c in calls]]


def test_one_file_by_many_at_once(index):
    m = index
    file, data = wheel("demo", "1.0")
    replies = at_once([lambda: post(m, fields(file, data, "demo", "1.0"))] * 6)
    assert {r.status for r in replies} == {200}
    assert len(m.ctl_json("snapshot", "ls", "models", "simple/demo")) == 1
    assert names(m, "demo") == [file]


def test_one_name_with_many_contents_at_once(index):
    m = index
    made = [wheel("demo", "1.0", files={"extra.py": f"N = {i}".encode()}) for i in range(6)]
    replies = at_once([lambda f=f, d=d: post(m, fields(f, d, "demo", "1.0")) for f, d in made])
    assert sorted(r.status for r in replies) == [200] + [409] * 5
    won = made[[r.status for r in replies].index(200)]
    assert m.get(f"/models/simple/demo/{won[0]}").body == won[1]
    assert page(m, "demo")["files"][0]["hashes"]["sha256"] == hashlib.sha256(won[1]).hexdigest()


def test_many_files_at_once(index):
    m = index
    replies = at_once([lambda i=i: bring(m, "demo", f"1.{i}") for i in range(12)])
    assert sorted(names(m, "demo")) == sorted(file for file, _ in replies)


# --- who may ---


def test_who_may_bring(index, wire):
    m = index
    file, data = wheel("demo", "1.0")
    values = fields(file, data, "demo", "1.0")
    refused = post(m, values, wire, token="")
    assert refused.status == 401 and refused["www-authenticate"] == "Bearer"
    assert post(m, values, wire, token="mrd_none_such").status == 401
    other = m.token("other" + wire, "publish:models/simple/other/*", "read:models/*")
    refused = post(m, values, wire, token=other)
    assert refused.status == 403 and b"publish:models/simple/demo/*" in refused.body
    assert m.get("/models/simple/demo/", wire).status == 404
    basic = base64.b64encode(f"__token__:{m.publisher}".encode()).decode()
    assert post(m, values, wire, token="", headers={"Authorization": f"Basic {basic}"}).status == 200
    ofile, odata = wheel("other", "1.0")
    assert post(m, fields(ofile, odata, "Other", "1.0"), wire, token=other, path="/models/legacy").status == 200


def test_nobody_is_told_to_go_on_who_may_not(index):
    """Expect: 100-continue: the answer comes instead of the body."""
    m = index
    for token, says in (("", b" 401 "), (m.publisher, b" 100 ")):
        with socket.create_connection(("127.0.0.1", m.port), timeout=120) as s:
            credential = f"Authorization: Bearer {token}\r\n" if token else ""
            s.sendall(f"POST /models/legacy/ HTTP/1.1\r\nHost: m\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n{credential}"
                      "Content-Type: multipart/form-data; boundary=x\r\n\r\n".encode())
            assert says in s.recv(65536).split(b"\r\n")[0] + b" "


def test_who_may_read(mirrord, wire):
    m = mirrord('repo "models" { protocol = "hosted" access { anonymous = none } }')
    m.publisher = m.token("ci", "publish:models/simple/*")
    files = {name: bring(m, name, "1.0", wire)[0] for name in ("mine", "theirs")}
    mine = {"Authorization": "Bearer " + m.token("reader", "read:models/simple/mine/*")}
    listed = json.loads(m.get("/models/simple/", wire, headers={"Accept": JSON, **mine}).body)
    assert [p["name"] for p in listed["projects"]] == ["mine"]
    for path, status in (("mine/", 200), (f"mine/{files['mine']}", 200), ("theirs/", 403), (f"theirs/{files['theirs']}", 403)):
        assert m.get(f"/models/simple/{path}", wire).status == 401
        assert m.get(f"/models/simple/{path}", wire, headers=mine).status == status
    assert m.get("/models/simple/", wire).status == 401
    assert "private" in m.get(f"/models/simple/mine/{files['mine']}", wire, headers=mine)["cache-control"]


# --- forms that are refused, in words; nothing of them shows ---


def refused_forms():
    file, data = wheel("demo", "1.0")
    sfile, sdata = sdist("demo", "1.0")
    zeros = "0" * 64

    def one(label, words, status=400, source=False, **change):
        values = fields(sfile if source else file, sdata if source else data, "demo", "1.0")
        values.update(change)
        return pytest.param({k: v for k, v in values.items() if v is not None}, status, words, id=label)

    def renamed(label, words, name, of=data, **change):
        return one(label, words, content=(name, of), sha256_digest=None, md5_digest=None, blake2_256_digest=None, **change)

    cut = data[:-5]
    return [
        one("action", ":action", **{":action": "submit"}),
        one("no-action", ":action", **{":action": None}),
        one("protocol", "protocol_version", protocol_version="2"),
        one("no-content", "no file", content=None),
        one("no-filename", "no file", content="text"),
        one("no-name", "invalid name", name=None),
        one("bad-name", "invalid name", name="../demo"),
        one("long-name", "invalid name", name="d" * 97),
        one("no-version", "version", version=None),
        one("bad-version", "version", version="one"),
        one("other-version", "another version", version="1.1"),
        one("other-name", "not of this project", name="demo2"),
        one("filetype", "filetype", filetype="sdist"),
        one("egg", "filetype", filetype="bdist_egg"),
        one("sha256", "sha256_digest", sha256_digest=zeros),
        one("sha256-short", "sha256_digest", sha256_digest="00"),
        one("md5", "md5_digest", md5_digest="0" * 32),
        one("blake2", "blake2_256_digest", blake2_256_digest=zeros),
        one("huge-name", "longer than 4096", 413, name="d" * 5000),
        one("huge-signature", "longer than 65536", 413, gpg_signature=("x.asc", b"x" * 65537)),
        one("huge-field", "larger than 16 MiB", 413, description="x" * (17 << 20)),
        renamed("path", "file name", "../demo-1.0-py3-none-any.whl"),
        renamed("folder", "file name", "a/demo-1.0-py3-none-any.whl"),
        renamed("exe", "file name", "demo-1.0.exe"),
        renamed("metadata", "file name", file + ".metadata"),
        renamed("empty", "empty", file, b""),
        renamed("no-zip", "cannot be read", file, b"not a zip file at all" * 10),
        renamed("cut-zip", "cannot be read", file, cut),
        renamed("wheel-of-other", "another project", file, wheel("demo2", "1.0")[1]),
        renamed("names-other", "is of another project", file, wheel("demo", "1.0", text=metadata("demo2", "1.0"))[1]),
        renamed("metadata-version", "another version", file, wheel("demo", "1.0", text=metadata("demo", "1.1"))[1]),
        renamed("metadata-words", "cannot be read", file, wheel("demo", "1.0", text="no field\n")[1]),
        renamed("requires-python", "Requires-Python", file, wheel("demo", "1.0", text=metadata("demo", "1.0", "three"))[1]),
        one("sdist-no-gzip", "not a gzip", source=True, content=(sfile, b"PK" + bytes(100)), sha256_digest=None, md5_digest=None,
            blake2_256_digest=None),
    ]


@pytest.mark.parametrize("values, status, words", refused_forms())
def test_refused(index, values, status, words):
    m = index
    reply = post(m, values)
    assert reply.status == status and words in reply.body.decode(), (reply.status, reply.body)
    assert m.get("/models/simple/demo/").status == 404
    assert m.ctl("verify").returncode == 0


def test_bodies_that_are_no_form(index, wire):
    m = index
    file, data = wheel("demo", "1.0")
    kind, body = form(fields(file, data, "demo", "1.0"), boundary="xyz")
    for kind_, body_, status in ((kind, b"", 400), (kind, body[:-9], 400), (kind, body[: len(body) // 2], 400), (kind, b"\r\n" + body, 400),
                                 (kind, body + b"more", 400), (kind, body.replace(b"--xyz\r\n", b"--xyZ\r\n", 1), 400),
                                 (kind, body.replace(b'name="name"', b'name="version"'), 400),
                                 (kind, body.replace(b'; name="name"', b""), 400),
                                 ("multipart/form-data", body, 415), ("multipart/mixed; boundary=xyz", body, 415),
                                 ("application/x-www-form-urlencoded", b"a=b", 415), (f"{kind}; boundary=abc", body, 415)):
        reply = post(m, (kind_, body_), wire)
        assert reply.status == status and len(reply.body) > 10, (kind_, body_[:80], reply.status, reply.body)
    assert post(m, (kind, body), wire, headers={"Content-Encoding": "gzip"}).status == 415
    assert m.get("/models/simple/demo/", wire).status == 404
    assert post(m, (kind, body), wire).status == 200


def test_too_large(mirrord, wire):
    m = mirrord('repo "models" { protocol = "hosted" max_object = 100k }')
    m.publisher = m.token("ci", "publish:models/simple/*")
    file, data = wheel("demo", "1.0", files={"large.bin": os.urandom(200 << 10)})
    refused = post(m, fields(file, data, "demo", "1.0"), wire)
    assert refused.status == 413 and b"max_object" in refused.body
    assert m.get("/models/simple/demo/", wire).status == 404
    bring(m, "demo", "1.0", wire)


def test_a_client_that_leaves(index):
    m = index
    file, data = wheel("demo", "1.0", files={"large.bin": os.urandom(5 << 20)})
    kind, body = form(fields(file, data, "demo", "1.0"))
    for part in (100, 2000, 3 << 20, len(body) - 1):
        with socket.create_connection(("127.0.0.1", m.port), timeout=120) as s:
            s.sendall(f"POST /models/legacy/ HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer {m.publisher}\r\nContent-Type: {kind}\r\n"
                      f"Content-Length: {len(body)}\r\n\r\n".encode() + body[:part])
    m.forsaken()
    assert m.get("/models/simple/demo/").status == 404
    assert post(m, (kind, body)).status == 200
    assert m.get(f"/models/simple/demo/{file}").body == data


# --- paths ---


def test_names_and_methods(index, wire):
    m = index
    file, _ = bring(m, "Demo.Pkg", "1.0", wire)
    for asked, leads in (("/models/simple", "./simple/"), ("/models/simple/Demo_Pkg/", "../demo-pkg/"), ("/models/simple/demo-pkg", "./demo-pkg/"),
                         ("/models/simple/Demo..Pkg", "./demo-pkg/"), (f"/models/simple/DEMO-pkg/{file}", f"../demo-pkg/{file}")):
        reply = m.get(asked, wire)
        assert (reply.status, reply["location"]) == (301, leads), asked
    for path in ("/models/simple/no-such/", "/models/simple/demo-pkg/no-such.whl", "/models/simple/-bad-/", "/models/simple/demo-pkg/a/b",
                 "/models/simple/demo-pkg@v9/"):
        assert m.get(path, wire).status == 404, path
    assert m.get("/models/simple/demo-pkg/", wire, headers={"Accept": "image/png"}).status == 406
    assert m.get("/models/simple/demo-pkg/?format=application/vnd.pypi.simple.v1%2Bjson", wire)["content-type"] == JSON
    for method, path in (("POST", "/models/simple/"), ("POST", "/models/simple/demo-pkg/"), ("PUT", f"/models/simple/demo-pkg/{file}"),
                         ("POST", "/models/simple/demo-pkg/-/uploads"), ("PUT", "/models/simple/demo-pkg/note.txt"),
                         ("PUT", f"/models/simple/demo-pkg@v1/{file}.yanked")):
        reply = m.put(path, b"x", wire, m.publisher, method=method)
        assert reply.status in (404, 405) and b"\n" in reply.body, (method, path, reply.status)
    assert names(m, "demo-pkg") == [file]


def test_a_tree_of_another_kind_has_not_that_owner(index):
    m = index
    token = m.token("hub", "publish:models/*")
    bring(m, "demo", "1.0")
    body = json.dumps({"type": "model", "name": "thing", "organization": "simple"}).encode()
    made = m.get("/models/api/repos/create", method="POST", headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                 args=["--data-binary", body.decode()])
    assert made.status == 400 and b"simple" in made.body
    for path, method, body in (("move", "POST", {"fromRepo": "simple/demo", "toRepo": "me/demo", "type": "model"}),
                               ("delete", "DELETE", {"name": "demo", "organization": "simple", "type": "model"})):
        reply = m.get(f"/models/api/repos/{path}", method=method, headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                      args=["--data-binary", json.dumps(body)])
        assert reply.status == 404, reply.body
    assert json.loads(m.get("/models/api/models").body) == []
    assert m.get("/models/api/models/simple/demo").status == 404
    assert m.get("/models/simple/demo/resolve/main/x").status == 404
    listed = json.loads(m.get("/models/simple/demo/?recursive=1").body)
    assert len(listed["entries"]) == 3 and listed["version"] == "v1"


# --- marks, taking away, versions ---


def test_yanked(index, wire):
    m = index
    file, data = bring(m, "demo", "1.0", wire)
    at = f"/models/simple/demo/{file}.yanked"
    assert m.put(at, b"x", wire).status == 401
    assert m.put("/models/simple/demo/demo-2.0-py3-none-any.whl.yanked", b"x", wire, m.publisher).status == 404
    assert m.put(at, b"x" * 5000, wire, m.publisher).status == 413
    assert m.put(at, 'eats "files" <b>\n'.encode(), wire, m.publisher).status == 201
    assert page(m, "demo", wire=wire)["files"][0]["yanked"] == 'eats "files" <b>'
    assert b'data-yanked="eats &quot;files&quot; &lt;b&gt;"' in m.get("/models/simple/demo/", wire).body
    assert m.put(at, b"", wire, m.publisher).status == 201
    assert page(m, "demo", wire=wire)["files"][0]["yanked"] is True
    assert m.put(at, None, wire, m.publisher, method="DELETE").status == 200
    assert page(m, "demo", wire=wire)["files"][0]["yanked"] is False and m.get(f"/models/simple/demo/{file}", wire).body == data


def test_taken_away(index, wire):
    m = index
    file, _ = bring(m, "demo", "1.0", wire)
    other, _ = bring(m, "demo", "1.0.1", wire)
    assert m.put(f"/models/simple/demo/{file}", None, wire, method="DELETE").status == 401
    assert m.put(f"/models/simple/demo/{file}", None, wire, m.publisher, method="DELETE").status == 200
    assert names(m, "demo") == [other] and m.get(f"/models/simple/demo/{file}.metadata", wire).status == 404
    assert {e["path"] for e in json.loads(m.get("/models/simple/demo/?recursive=1", wire).body)["entries"]} == {
        other, other + ".about", other + ".metadata"}
    assert m.put("/models/simple/demo/", None, wire, m.publisher, method="DELETE").status == 200
    assert m.get("/models/simple/demo/", wire).status == 404
    assert json.loads(m.get("/models/simple/", wire, headers={"Accept": JSON}).body)["projects"] == []


def test_versions_and_rollback(index):
    m = index
    files = [bring(m, "demo", f"1.{i}")[0] for i in range(3)]
    assert names(m, "demo", "@v2") == files[:2]
    m.ctl("snapshot", "rollback", "models", "simple/demo", "v1")
    assert names(m, "demo") == files[:1] and m.get(f"/models/simple/demo/{files[2]}").status == 404
    assert m.get(f"/models/simple/demo@v3/{files[2]}").status == 200
    again = bring(m, "demo", "1.1", requires_python=">=3")[0]
    assert names(m, "demo") == [files[0], again]


# --- trouble ---


def test_a_full_disk(mirrord, small_disk):  # noqa: F811
    m = mirrord(f'storage {{ quota = "1g" reserve = "1m" }} {CONFIG}', state=small_disk / "state")
    m.publisher = m.token("ci", "publish:models/simple/*")
    kept, _ = bring(m, "demo", "1.0")
    file, data = wheel("demo", "2.0", files={"large.bin": os.urandom(12 << 20)})
    made = form(fields(file, data, "demo", "2.0"))
    fill_up(small_disk)
    refused = post(m, made, folder=m.folder)
    assert refused.status == 507, (refused.status, refused.body)
    assert names(m, "demo") == [kept]
    (small_disk / "ballast").unlink()
    until(lambda: post(m, made).status == 200)
    assert names(m, "demo") == [kept, file] and m.ctl("verify").returncode == 0


def test_a_kill_at_any_moment(index):
    """What an answer has said stays; what shows is whole."""
    m = index
    r = random.Random(11)
    said = {}
    for life in range(6):
        stop = threading.Event()

        def bringing(worker, stop=stop, life=life):
            for i in range(1000):
                if stop.is_set():
                    return
                version = f"{life}.{worker}.{i}"
                file, data = wheel("demo", version, files={"more.bin": random.Random(version).randbytes(r.choice([10, 100 << 10, 2 << 20]))})
                if post(m, fields(file, data, "demo", version)).status == 200:
                    said[file] = data

        threads = [threading.Thread(target=bringing, args=(w,)) for w in range(3)]
        for t in threads:
            t.start()
        least = len(said) + r.randrange(1, 6)
        until(lambda least=least: len(said) >= least)
        m.kill()
        stop.set()
        for t in threads:
            t.join()
        m.start()
        for one in page(m, "demo")["files"]:
            got = m.get(f"/models/simple/demo/{one['filename']}")
            assert got.status == 200 and hashlib.sha256(got.body).hexdigest() == one["hashes"]["sha256"] and len(got.body) == one["size"]
            meta = m.get(f"/models/simple/demo/{one['filename']}.metadata").body
            assert hashlib.sha256(meta).hexdigest() == one["core-metadata"]["sha256"]
        assert set(said) <= set(names(m, "demo"))
    assert m.ctl("verify").returncode == 0
