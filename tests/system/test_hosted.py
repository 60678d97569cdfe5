"""Hosted repositories: files in and out, many at once or none, refusals that name what is there."""
import base64
import email.utils
import hashlib
import itertools
import json
import os
import re
import socket
import struct
import time

import pytest

from harness.mirrord import SLOW, until

RECEIVED = "mirrord_http_received_bytes_total"
CONFIG = 'repo "models" { protocol = "hosted" }'
BIG = os.urandom(3 << 20)


@pytest.fixture
def models(mirrord):
    m = mirrord(CONFIG)
    m.publisher = m.token("ci", "publish:models/*", "read:models/*")
    return m


def repr_digest(data):
    return "sha-256=:" + base64.b64encode(hashlib.sha256(data).digest()).decode() + ":"


def test_put_then_get(models, wire):
    data = BIG if wire == "h1" else b"small"
    assert models.put("/models/me/gpt/model.bin", data, wire, models.publisher).status in (200, 201, 204)
    got = models.get("/models/me/gpt/model.bin", wire)
    assert (got.status, got.body) == (200, data)
    assert got["etag"] == f'"sha256-{hashlib.sha256(data).hexdigest()}"'
    assert got["repr-digest"] == repr_digest(data)


def test_empty_file(models, wire):
    assert models.put("/models/me/gpt/empty", b"", wire, models.publisher).status == 201
    location = open_upload(models, wire)
    assert models.put(location + "/empty-too", b"", wire, models.publisher).status == 201
    assert commit(models, location, wire).status == 201
    for name in ("empty", "empty-too"):
        got = models.get(f"/models/me/gpt/{name}", wire)
        assert (got.status, got.body) == (200, b"")


def test_head_delete_and_not_found(models, wire):
    models.put("/models/me/gpt/a", b"1", wire, models.publisher)
    head = models.get("/models/me/gpt/a", wire, head=True)
    assert (head.status, head["content-length"]) == (200, "1")
    assert models.put("/models/me/gpt/a", None, wire, models.publisher, method="DELETE").status in (200, 204)
    assert models.get("/models/me/gpt/a", wire).status == 404


def test_publishing_needs_the_right(models, wire):
    assert models.put("/models/me/gpt/a", b"1", wire).status == 401
    other = models.token("other" + wire, "publish:elsewhere/*")
    assert models.put("/models/me/gpt/a", b"1", wire, other).status == 403
    assert models.put("/models/me/gpt/a", b"1", wire, "mrd_0000_nonsense").status == 401
    assert models.get("/models/me/gpt/a", wire).status == 404


@pytest.mark.parametrize("path,scope", [
    ("me/gpt/sub/model.bin", "publish:models/me/gpt/*"), ("datasets/me/csv/a.csv", "publish:models/datasets/me/csv/*"),
    ("me/gpt/-/uploads", "publish:models/me/gpt/*"), ("legacy/", "publish:models/simple/*"), ("api/repos/create", "publish:models/OWNER/*")])
def test_who_lacks_a_token_reads_what_to_ask_for(models, wire, path, scope):
    """A client cannot make a token. It can ask the operator for one, and the operator needs the scope."""
    got = models.put(f"/models/{path}", b"{}", wire, method="PUT" if "." in path else "POST")
    assert got.status == 401 and f"ask this mirror's operator for one with scope {scope} (".encode() in got.body, got
    ours = models.token("asked-for", scope.replace("OWNER", "me"))
    assert models.put(f"/models/{path}", b"{}", wire, ours, method="PUT" if "." in path else "POST").status not in (401, 403)


def test_who_may_not_read_reads_what_to_ask_for(mirrord, origin):
    m = mirrord(f"""repo "closed" {{ protocol = "hosted" access {{ anonymous = none }} }}
        repo "far" {{ protocol = "generic" origin = "{origin.url}/" access {{ anonymous = none }} }}""")
    for path, scope in {"/closed/me/gpt/a/b": "read:closed/me/gpt/*", "/closed/me/": "read:closed/me/*", "/far/a/b/c": "read:far/*"}.items():
        assert f"with scope {scope} (".encode() in m.get(path).body, m.get(path)


def test_wrong_digest_leaves_nothing(models, wire):
    reply = models.put("/models/me/gpt/a", b"bytes", wire, models.publisher,
                       headers={"Repr-Digest": repr_digest(b"other bytes")})
    assert 400 <= reply.status < 500
    assert models.get("/models/me/gpt/a", wire).status == 404


def test_folder_listing(models, wire):
    for name in ("config.json", "weights/a.safetensors", "weights/b.safetensors"):
        models.put(f"/models/me/gpt/{name}", name.encode(), wire, models.publisher)
    for path, accept in (("", "application/json"), ("?format=json", None), ("?format=json", "text/html")):
        got = models.get("/models/me/gpt/" + path, wire, headers={"Accept": accept} if accept else {})
        assert got["content-type"] == "application/json" and got["vary"] == "accept"
        assert [e["path"] for e in json.loads(got.body)["entries"]] == ["config.json", "weights/"]
    for headers in ({}, {"Accept": ""}, {"Accept": "*/*"}, {"Accept": "text/html"}):
        page = models.get("/models/me/gpt/", wire, headers=headers)
        assert page["content-type"] == "text/html; charset=utf-8" and page["vary"] == "accept"
        assert re.findall('<a href="(.*?)"', page.body.decode()) == ["config.json", "weights/"]
    assert json.loads(models.get("/models/?format=json", wire).body)["trees"][0]["name"] == "me/gpt"
    for path, entry in (("/models/", "me/"), ("/models/me/", "gpt/")):
        assert re.findall('<a href="(.*?)"', models.get(path, wire).body.decode()) == [entry]


def test_what_older_programs_of_ours_ask(models, wire):
    """trainagent since its first version, its publish, and a mirrord that crawls folders: each as it writes its question."""
    models.put("/models/me/gpt/weights/a", b"1", wire, models.publisher)
    for path, headers in (("/models/me/gpt/?recursive=1", {"Accept": "application/json"}), ("/models/me/gpt/weights?recursive=1", {"Accept": "application/json"}),
                          ("/models/me/gpt/?recursive=1", {}), ("/models/me/gpt/", {"Accept": "application/json, */*;q=0.5"})):
        got = models.get(path, wire, headers=headers)
        assert (got.status, got["content-type"]) == (200, "application/json")
        assert json.loads(got.body)["entries"][0]["path"] in ("weights/a", "a", "weights/")


def test_a_folder_without_its_slash(models, wire):
    """Links of a page are relative to the folder: a client is led to where they are right."""
    models.put("/models/me/gpt/a%3Ab/c%20d/x", b"1", wire, models.publisher)
    for path, to in (("/models/me/gpt/a:b", "./a:b/"), ("/models/me/gpt/a%3Ab/c%20d?format=html", "./c%20d/?format=html")):
        for head in (False, True):
            got = models.get(path, wire, head=head)
            assert (got.status, got["location"]) == (307, to)
    assert models.get("/models/me/gpt/a", wire).status == 404  # no folder, though names begin so
    assert models.get("/models/me/gpt/none/", wire).status == 404


def test_a_page_leads_up_and_not_astray(models, wire):
    models.put("/models/me/gpt/a/b/x", b"1", wire, models.publisher)
    page = models.get("/models/me/gpt@v1/a/b/", wire)
    source = page.body.decode()
    assert re.findall('<a href=([^" ]+) >', source) == ["/", "/models/", "/models/me/", "/models/me/gpt%40v1/", "/models/me/gpt%40v1/a/", "/"]
    for up in ("/", "/models/", "/models/me/", "/models/me/gpt%40v1/", "/models/me/gpt%40v1/a/"):
        assert models.get(up, wire)["content-type"] == "text/html; charset=utf-8"
    style = re.search("<style>(.*?)</style>", source, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}';" in page["content-security-policy"] and "script" not in page["content-security-policy"]
    assert style == re.search("<style>(.*?)</style>", models.get("/", wire).body.decode(), re.S)[1]


def dated(m, path, wire, **conditions):
    return m.get(path, wire, headers={name.replace("_", "-"): value for name, value in conditions.items()})


def test_a_file_is_dated_by_its_version(models, wire):
    before = int(time.time() - 0.1)  # whole seconds come from the kernel's coarse clock, which is behind by up to a tick
    models.put("/models/me/gpt/a", b"one", wire, models.publisher)
    got = models.get("/models/me/gpt/a", wire)
    date = email.utils.parsedate_to_datetime(got["last-modified"]).timestamp()
    assert before <= date <= time.time()
    for path in ("/models/me/gpt/a", "/models/me/gpt@v1/a", "/models/me/gpt/resolve/main/a"):
        for head in (True, False):
            assert models.get(path, wire, head=head)["last-modified"] == got["last-modified"], path
    until(lambda: time.time() > date + 1.1)  # the next version is of another second, also by the coarse clock of a loop
    models.put("/models/me/gpt/a", b"two", wire, models.publisher)
    two = models.get("/models/me/gpt/a", wire)
    assert email.utils.parsedate_to_datetime(two["last-modified"]).timestamp() > date
    assert models.get("/models/me/gpt@v1/a", wire)["last-modified"] == got["last-modified"]
    assert dated(models, "/models/me/gpt/a", wire, If_Modified_Since=two["last-modified"]).status == 304
    assert dated(models, "/models/me/gpt/a", wire, If_Modified_Since=got["last-modified"]).body == b"two"
    # The entity tag goes first (RFC 9110 13.2.2); no range is joined by a date that two commits may share.
    assert dated(models, "/models/me/gpt/a", wire, If_Modified_Since=two["last-modified"], If_None_Match='"x"').status == 200
    assert dated(models, "/models/me/gpt/a", wire, Range="bytes=1-", If_Range=two["last-modified"]).status == 200
    assert dated(models, "/models/me/gpt/a", wire, Range="bytes=1-", If_Range=two["etag"]).status == 206
    # After a rollback the file is older than what a client may have: that is a change, too.
    models.ctl("snapshot", "rollback", "models", "me/gpt", "v1")
    back = dated(models, "/models/me/gpt/a", wire, If_Modified_Since=two["last-modified"])
    assert (back.status, back.body, back["last-modified"]) == (200, b"one", got["last-modified"])


def open_upload(m, wire="h1", tree="me/gpt"):
    opened = m.put(f"/models/{tree}/-/uploads", b"", wire, m.publisher, method="POST")
    assert opened.status == 201, opened.body
    return opened["location"].replace(m.url("", wire), "")


def commit(m, location, wire="h1", headers=None):
    return m.put(location + "/commit", b"", wire, m.publisher, method="POST", headers=headers)


def test_nothing_shows_before_the_commit(models, wire):
    location = open_upload(models, wire)
    for i in range(5):
        assert models.put(f"{location}/part-{i}", f"part {i}".encode(), wire, models.publisher).status in (200, 201, 204)
        assert models.get(f"/models/me/gpt/part-{i}", wire).status == 404
    done = commit(models, location, wire)
    assert done.status == 201 and done["etag"], done.body
    for i in range(5):
        assert models.get(f"/models/me/gpt/part-{i}", wire).body == f"part {i}".encode()


def test_commit_on_a_moved_head_is_refused(models, wire):
    first = commit_file(models, wire, "a", b"one")
    commit_file(models, wire, "a", b"two")
    location = open_upload(models, wire)
    models.put(f"{location}/a", b"three", wire, models.publisher)
    refused = commit(models, location, wire, {"If-Match": first["etag"]})
    assert refused.status == 412
    assert models.get("/models/me/gpt/a", wire).body == b"two"


def test_commit_on_the_known_head_is_taken(models, wire):
    first = commit_file(models, wire, "a", b"one")
    location = open_upload(models, wire)
    models.put(f"{location}/b", b"two", wire, models.publisher)
    assert commit(models, location, wire, {"If-Match": first["etag"]}).status == 201
    assert models.get("/models/me/gpt/a", wire).body == b"one"
    assert models.get("/models/me/gpt/b", wire).body == b"two"


def commit_file(m, wire, name, data):
    location = open_upload(m, wire)
    assert m.put(f"{location}/{name}", data, wire, m.publisher).status in (200, 201, 204)
    done = commit(m, location, wire)
    assert done.status == 201
    return done


def test_resume_by_content_range(models, wire):
    location = open_upload(models, wire)
    half = len(BIG) // 2
    for first, end in ((0, half), (half, len(BIG))):
        reply = models.put(f"{location}/big", BIG[first:end], wire, models.publisher,
                           headers={"Content-Range": f"bytes {first}-{end - 1}/{len(BIG)}"})
        assert reply.status in (200, 201, 204, 308), reply.body
    assert commit(models, location, wire).status == 201
    assert models.get("/models/me/gpt/big", wire).body == BIG


def test_resume_after_a_restart(models):
    location = open_upload(models)
    half = 2 << 20
    models.put(f"{location}/big", BIG[:half], token=models.publisher,
               headers={"Content-Range": f"bytes 0-{half - 1}/{len(BIG)}"})
    models.stop()
    models.start()
    offset = int(where_is(models, f"{location}/big")["upload-offset"])
    assert 0 < offset <= half
    reply = models.put(f"{location}/big", BIG[offset:], token=models.publisher,
                       headers={"Content-Range": f"bytes {offset}-{len(BIG) - 1}/{len(BIG)}"})
    assert reply.status in (200, 201, 204), reply.body
    assert commit(models, location).status == 201
    assert models.get("/models/me/gpt/big").body == BIG


def where_is(m, path):
    reply = m.get(path, headers={"Authorization": f"Bearer {m.publisher}"}, head=True)
    assert reply.status == 200
    return reply


def received(s):
    s.setblocking(False)
    try:
        return s.recv(4096)
    except BlockingIOError:
        return b""


def test_who_comes_last_has_the_file(models):
    """A connection whose client is gone, and the mirror cannot know: HEAD ends it, and says exactly what it brought."""
    location = open_upload(models)
    dead = socket.create_connection(("127.0.0.1", models.port), 120 * SLOW)
    dead.sendall(f"PUT {location}/big HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer {models.publisher}\r\n"
                 f"Content-Length: {len(BIG)}\r\n\r\n".encode() + BIG[:2 << 20])

    models.reaches(RECEIVED, 2 << 20)
    assert models.put(f"{location}/big", None, token=models.publisher, method="GET").status == 200  # who only looks
    assert b"HTTP/1.1 409 " not in received(dead)
    where = where_is(models, f"{location}/big")
    offset = int(where["upload-offset"])
    assert 0 < offset <= 2 << 20 and where["upload-complete"] == "?0"
    dead.settimeout(120 * SLOW)
    assert dead.recv(100).startswith(b"HTTP/1.1 409 ")
    dead.close()
    reply = models.put(f"{location}/big", BIG[offset:], token=models.publisher,
                       headers={"Content-Range": f"bytes {offset}-{len(BIG) - 1}/{len(BIG)}"})
    assert reply.status == 201, reply.body
    assert commit(models, location).status == 201
    assert models.get("/models/me/gpt/big").body == BIG


def test_a_put_takes_over_too(models):
    location = open_upload(models)
    dead = socket.create_connection(("127.0.0.1", models.port), 120 * SLOW)
    dead.sendall(f"PUT {location}/big HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer {models.publisher}\r\n"
                 f"Content-Length: {len(BIG)}\r\nExpect: 100-continue\r\n\r\n".encode())
    assert dead.recv(100).startswith(b"HTTP/1.1 100 ")
    assert models.put(f"{location}/big", BIG, token=models.publisher).status == 201
    assert dead.recv(100).startswith(b"HTTP/1.1 409 ")
    dead.close()
    assert commit(models, location).status == 201


def test_all_that_came_counts(models):
    """The last byte came, then the client went: the file is whole."""
    location = open_upload(models)
    first, second = (models.metric(RECEIVED) for _ in range(2))  # to ask is to send, too: always as much
    asked = itertools.count(1)
    with socket.create_connection(("127.0.0.1", models.port), 120 * SLOW) as s:
        sent = f"PUT {location}/big HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer {models.publisher}\r\n" \
               f"Content-Length: {len(BIG)}\r\n\r\n".encode() + BIG
        s.sendall(sent)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() is a reset
        until(lambda: models.metric(RECEIVED) >= second + next(asked) * (second - first) + len(sent))
    where = where_is(models, f"{location}/big")
    assert (where["upload-offset"], where["upload-complete"]) == (str(len(BIG)), "?1")


def test_old_versions_stay_readable(models, wire):
    first = commit_file(models, wire, "a", b"one")
    commit_file(models, wire, "a", b"two")
    root = first["etag"].strip('"')
    assert models.get("/models/me/gpt@v1/a", wire).body == b"one"
    assert models.get(f"/models/me/gpt@{root}/a", wire).body == b"one"
    assert models.get("/models/me/gpt/a", wire).body == b"two"


def test_a_version_as_a_folder_leads_to_its_name(models, wire):
    """A synced repo's versions stand behind its name and a slash, a tree's behind the name alone."""
    models.put("/models/me/gpt/a.txt", b"one", token=models.publisher)
    for path, hint in {"me/gpt/@v1": "write models/me/gpt@v1/", "me/gpt/@v1/a.txt": "write models/me/gpt@v1/a.txt"}.items():
        got = models.get(f"/models/{path}", wire)
        assert got.status == 404 and hint in got.body.decode(), got
    assert models.get("/models/me/gpt@v1/a.txt", wire).body == b"one"
    assert b"write models" not in models.get("/models/me/gpt/nothing", wire).body
    models.put("/models/me/gpt/@v1/a.txt", b"mine", token=models.publisher)  # a name as any other
    assert models.get("/models/me/gpt/@v1/a.txt", wire).body == b"mine"


@pytest.mark.parametrize("path", ["/models/me/gpt/../../../etc/passwd", "/models/me/gpt/a/%2e%2e/b", "/models/me/gpt/a%00b",
                                  "/models/me/gpt/./a"])
def test_names_never_become_paths(models, path):
    assert models.put(path, b"x", token=models.publisher).status in (400, 403, 404)


def test_private_repo(mirrord, wire):
    m = mirrord('repo "secret" { protocol = "hosted" access { anonymous = none } }')
    publisher, reader = m.token("p", "publish:secret/*"), m.token("r", "read:secret/*")
    assert m.put("/secret/me/x/a", b"1", wire, publisher).status in (200, 201, 204)
    assert m.get("/secret/me/x/a", wire).status in (401, 403, 404)
    assert m.get("/secret/me/x/a", wire, headers={"Authorization": f"Bearer {reader}"}).body == b"1"
    digest = hashlib.sha256(b"1").hexdigest()
    assert m.get(f"/-/blob/{digest}", wire).status == 404
    assert m.get(f"/-/blob/{digest}", wire, headers={"Authorization": f"Bearer {reader}"}).body == b"1"


def test_digests_by_the_right_to_one_tree(mirrord):
    """Who may read a tree, and no more, has its digests too: chunk lists are asked for by them."""
    m = mirrord('repo "secret" { protocol = "hosted" access { anonymous = none } }')
    body = b"x" * 100000
    assert m.put("/secret/me/x/a", body, token=m.token("p", "publish:secret/*")).status == 201
    digest = hashlib.sha256(body).hexdigest()
    for name, scope, status in (("tree", "read:secret/me/x/*", 200), ("owner", "read:secret/me/*", 200),
                                ("other", "read:secret/me/y/*", 404), ("longer", "read:secret/me/xy/*", 404),
                                ("file", "read:secret/me/x/b", 404)):
        fields = {"Authorization": f"Bearer {m.token(name, scope)}"}
        for path in ("blob", "chunks"):
            assert m.get(f"/-/{path}/{digest}", headers=fields).status == status, scope


def test_a_damaged_file_is_not_absent(models, wire):
    """What its tree names and the store has lost is an error each time, until the same bytes come again."""
    body = b"x" * 100000
    assert models.put("/models/me/gpt/a", body, wire, models.publisher).status == 201
    models.stop()
    for file in (models.state / "blobs").glob("*/*/*"):
        file.unlink()
    models.start()
    assert [models.get("/models/me/gpt/a", wire).status for _ in range(3)] == [500] * 3
    assert models.get("/models/me/gpt/b", wire).status == 404
    assert models.put("/models/me/gpt/b", body, wire, models.publisher).status == 201
    assert models.get("/models/me/gpt/a", wire).body == body


def test_a_revoked_token_is_refused(models):
    assert models.put("/models/me/gpt/a", b"1", token=models.publisher).status in (200, 201, 204)
    models.ctl("token", "revoke", "ci")
    assert models.put("/models/me/gpt/b", b"1", token=models.publisher).status == 401


def test_all_survives_a_restart(models):
    commit_file(models, "h1", "a", BIG)
    models.stop()
    models.start()
    assert models.get("/models/me/gpt/a").body == BIG
    assert models.ctl("verify").returncode == 0
