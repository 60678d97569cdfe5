"""Images pushed into hosted repos: each rule of the OCI distribution-spec that clients rely on, and what must hold besides."""
import base64
import concurrent.futures
import json
import os
import re
import socket
import threading

import pytest

from harness.curl import curl
from harness.image import INDEX, LIST, MANIFEST, Image, descriptor, digest, errors, index, manifest, sha512, text
from harness.mirrord import free_port

CONFIG = 'repo "models" { protocol = "hosted" }'
BIG = os.urandom(3 << 20)
NOBODY = "sha256:" + "0" * 64


@pytest.fixture
def models(mirrord):
    m = mirrord(CONFIG)
    m.publisher = m.token("ci", "publish:models/me/*")
    return m


@pytest.fixture
def image(models, wire):
    return Image(models, token=models.publisher, wire=wire)


@pytest.fixture
def reader(models, wire):
    """As clients without an account come: with what the token server gives those."""
    return Image(models, token="anonymous", wire=wire)


# --- pull ---

def test_pull_by_tag_and_by_digest(image, reader):
    data = image.push("v1", [BIG, b"small"])
    for reference in ("v1", digest(data)):
        got = reader.get(f"manifests/{reference}", Accept=MANIFEST)
        assert (got.status, got.body, got["content-type"]) == (200, data, MANIFEST)
        assert got["docker-content-digest"] == digest(data) and got["etag"] == f'"{digest(data)}"'
        head = reader.head(f"manifests/{reference}")
        assert (head.status, head["content-length"], head["content-type"]) == (200, str(len(data)), MANIFEST)
        assert head["docker-content-digest"] == digest(data)
        assert reader.get(f"manifests/{reference}", If_None_Match=got["etag"]).status == 304
    for layer in (BIG, b"small", b"{}"):
        got = reader.get(f"blobs/{digest(layer)}")
        assert (got.status, got.body, got["docker-content-digest"]) == (200, layer, digest(layer))
        head = reader.head(f"blobs/{digest(layer)}")
        assert (head.status, head["content-length"]) == (200, str(len(layer)))
    part = reader.get(f"blobs/{digest(BIG)}", Range="bytes=100-199")
    assert (part.status, part.body) == (206, BIG[100:200])


def test_a_manifest_is_sent_whole(image, reader):
    """Some clients ask for "bytes=0-" of a manifest, and take nothing but 200 for an answer."""
    data = image.push("v1", [b"x"])
    for wanted in ("bytes=0-", "bytes=0-9", "bytes=999999-"):
        got = reader.get("manifests/v1", Range=wanted)
        assert (got.status, got.body) == (200, data)


def test_what_is_not_there(image, reader):
    for path in ("manifests/v1", f"manifests/{NOBODY}", "tags/list"):
        assert reader.get(path).status == 404 and errors(reader.get(path)) == ["NAME_UNKNOWN"]
    image.push("v1", [b"x"])
    for path, code in (("manifests/v2", "MANIFEST_UNKNOWN"), (f"manifests/{NOBODY}", "MANIFEST_UNKNOWN"),
                       (f"blobs/{NOBODY}", "BLOB_UNKNOWN"), (f"manifests/sha512:{'0' * 128}", "MANIFEST_UNKNOWN"),
                       (f"blobs/sha512:{'0' * 128}", "BLOB_UNKNOWN")):
        for who in (reader, image):
            got = who.get(path)
            assert got.status == 404 and errors(got) == [code], path
            assert who.head(path).status == 404
    assert errors(reader.get("blobs/sha256:xyz")) == ["DIGEST_INVALID"]


# --- push: blobs ---

def test_all_at_once(image):
    """POST with a digest; with another's bytes it is refused, and nothing is there."""
    for data in (b"", b"small", BIG):
        got = image.ask("POST", f"blobs/uploads/?digest={digest(data)}", data, content_type="application/octet-stream")
        assert got.status == 201 and got["docker-content-digest"] == digest(data)
        assert got["location"].endswith(f"/blobs/{digest(data)}") and image.get(got["location"]).body == data
        got = image.ask("POST", f"blobs/uploads/?digest={digest(data + b'!')}", data)
        assert got.status == 400 and errors(got) == ["DIGEST_INVALID"]
        assert image.head(f"blobs/{digest(data + b'!')}").status == 404


def test_begin_then_put(image):
    for data in (b"", b"small", BIG):
        got = image.push_blob(data)
        assert image.get(got["location"]).body == data


def test_one_stream(image):
    """As most clients do it: one PATCH that says nothing of where it begins, then a PUT without a body."""
    at = image.begin()
    got = image.ask("PATCH", at, BIG, content_type="application/octet-stream")
    assert got.status == 202 and got["range"] == f"0-{len(BIG) - 1}" and got["docker-upload-uuid"]
    got = image.ask("PUT", f"{got['location']}?digest={digest(BIG)}")
    assert got.status == 201 and image.get(f"blobs/{digest(BIG)}").body == BIG


def test_in_chunks(image):
    at, step = image.begin(), 1 << 20
    for i in range(0, len(BIG) - step, step):
        got = image.ask("PATCH", at, BIG[i:i + step], content_range=f"{i}-{i + step - 1}")
        assert got.status == 202 and got["range"] == f"0-{i + step - 1}"
        at = got["location"]
        now = image.get(at)
        assert now.status == 204 and now["range"] == got["range"] and now["location"].endswith(at)
    i = len(BIG) - step
    got = image.ask("PUT", f"{at}?digest={digest(BIG)}", BIG[i:], content_range=f"{i}-{len(BIG) - 1}")
    assert got.status == 201 and image.get(got["location"]).body == BIG


def test_out_of_order(image):
    at = image.begin()
    image.ask("PATCH", at, b"0123456789", content_range="0-9")
    for first in (0, 5, 11):
        got = image.ask("PATCH", at, b"abc", content_range=f"{first}-{first + 2}")
        assert got.status == 416 and got["range"] == "0-9" and got["location"]
        assert errors(got) == ["BLOB_UPLOAD_INVALID"]
    got = image.ask("PATCH", at, b"abc", content_range="10-20")
    assert got.status == 400 and errors(got) == ["SIZE_INVALID"]
    assert image.ask("PATCH", at, b"abc", content_range="10-12").status == 202
    assert image.ask("PUT", f"{at}?digest={digest(b'0123456789abc')}").status == 201


def test_wrong_digests(image):
    """The bytes of another digest end the upload; what is no digest does not."""
    at = image.begin()
    image.ask("PATCH", at, b"bytes")
    for bad in ("", "?digest=sha256:abc", "?digest=md5:" + "0" * 32, "?digest=sha512:" + "0" * 64):
        got = image.ask("PUT", at + bad)
        assert got.status == 400 and errors(got) == ["DIGEST_INVALID"]
    got = image.ask("PUT", f"{at}?digest={NOBODY}")
    assert got.status == 400 and errors(got) == ["DIGEST_INVALID"]
    assert errors(image.ask("PUT", f"{at}?digest={digest(b'bytes')}")) == ["BLOB_UPLOAD_UNKNOWN"]
    assert image.head(f"blobs/{digest(b'bytes')}").status == 404


def test_other_names(image, reader):
    """By SHA-512: the bytes are the same ones, found by both names."""
    data, config = BIG, b"{}"
    assert image.ask("POST", f"blobs/uploads/?digest={sha512(config)}", config).status == 201
    at = image.begin()
    for bad in (sha512(b"x"), sha512(b"y")):
        assert errors(image.ask("PUT", f"{image.begin()}?digest={bad}", b"bytes")) == ["DIGEST_INVALID"]
        assert image.head(f"blobs/{bad}").status == 404
    image.ask("PATCH", at, data)
    for _ in range(2):
        got = image.ask("PUT", f"{at}?digest={sha512(data)}")
        assert got.status == 201 and got["docker-content-digest"] == sha512(data) and got["location"].endswith(sha512(data))
    for name in (sha512(data), digest(data)):
        assert image.get(f"blobs/{name}").body == data and reader.get(f"blobs/{name}").status == 404
    doc = json.loads(manifest(config, [data]))
    doc["config"]["digest"], doc["layers"][0]["digest"] = sha512(config), sha512(data)
    doc = text(doc)
    assert errors(image.put_manifest(sha512(b"other"), doc)) == ["DIGEST_INVALID"]
    got = image.put_manifest(sha512(doc), doc)
    assert got.status == 201 and got["docker-content-digest"] == sha512(doc) and got["location"].endswith(sha512(doc))
    for name in (sha512(doc), digest(doc)):
        got = reader.get(f"manifests/{name}")
        assert (got.status, got.body, got["docker-content-digest"]) == (200, doc, name)
    assert reader.get(f"blobs/{sha512(data)}").body == data
    note = image.push("note", [b"note"], subject=dict(descriptor(doc, MANIFEST), digest=sha512(doc)))
    listed = json.loads(reader.get(f"referrers/{sha512(doc)}").body)
    assert [d["digest"] for d in listed["manifests"]] == [digest(note)]
    both = json.loads(manifest(config, [data]))
    both["subject"] = dict(descriptor(doc, MANIFEST), digest=sha512(doc))
    both = text(both)
    got = image.put_manifest(sha512(both), both)
    assert (got.status, got["oci-subject"], got["docker-content-digest"]) == (201, sha512(doc), sha512(both))
    listed = json.loads(reader.get(f"referrers/{sha512(doc)}").body)
    assert {d["digest"] for d in listed["manifests"]} == {digest(note), sha512(both)}
    mounted = Image(image.m, "models/me/second", image.token, image.wire)
    assert mounted.ask("POST", f"blobs/uploads/?mount={sha512(data)}&from=models/me/img", b"").status == 201
    for _ in range(2):
        got = image.ask("DELETE", f"manifests/{sha512(doc)}")
    assert got.status == 404 and reader.get(f"manifests/{digest(doc)}").status == 404


def test_an_upload_that_is_dropped(image):
    at = image.begin()
    image.ask("PATCH", at, BIG)
    assert image.ask("DELETE", at).status == 204
    for method, end in (("GET", ""), ("PATCH", ""), ("PUT", f"?digest={digest(BIG)}"), ("DELETE", "")):
        got = image.ask(method, at + end, b"" if method in ("PATCH", "PUT") else None)
        assert got.status == 404 and errors(got) == ["BLOB_UPLOAD_UNKNOWN"], method
    assert image.get("blobs/uploads/no-such").status == 404


def test_the_end_may_be_asked_twice(image):
    at = image.begin()
    for _ in range(2):
        got = image.ask("PUT", f"{at}?digest={digest(b'x')}", b"x")
        assert got.status == 201 and got["docker-content-digest"] == digest(b"x")


def test_nothing_shows_before_its_manifest(image, reader, models):
    """A blob that no manifest names is seen by those alone who may push there: not by others who read, nor in another image."""
    image.push_blob(b"secret")
    path = f"blobs/{digest(b'secret')}"
    other = models.token("other" + image.wire, "publish:models/you/*", "read:models/me/*")
    for who in (reader, Image(models, token=other, wire=image.wire),
                Image(models, "models/me/other", models.publisher, image.wire)):
        assert who.get(path).status == 404 and who.head(path).status == 404
    assert image.get(path).body == b"secret" and reader.get(path).status == 404
    assert reader.tags() is None
    for who in (image, reader):  # who shows nothing at all is asked to: a push may go on with it
        got = models.get(f"{who.root}/{path}", image.wire)
        assert got.status == 401 and got["www-authenticate"].startswith("Bearer realm=") and errors(got) == ["UNAUTHORIZED"]
    image.push("v1", [b"secret"])
    assert models.get(f"{image.root}/{path}", image.wire).body == b"secret"
    assert reader.get(path).body == b"secret" and reader.tags() == ["v1"]


def test_mount(image, models):
    """From another image of the repo: nothing is sent. Where that cannot be, an upload begins."""
    base = Image(models, "models/me/base", models.publisher, image.wire)
    base.push("v1", [BIG])
    where = f"blobs/uploads/?mount={digest(BIG)}"
    for source in ("&from=models/me/none", "&from=elsewhere/me/base", "&from=..", ""):
        got = image.ask("POST", where + source, b"")
        assert got.status == 202 and "/blobs/uploads/" in got["location"], source
    got = image.ask("POST", where + "&from=models/me/base", b"")
    assert got.status == 201 and got["location"].endswith(f"/blobs/{digest(BIG)}")
    assert got["docker-content-digest"] == digest(BIG)
    image.push_blob(b"{}")
    assert image.put_manifest("v1", manifest(b"{}", [BIG])).status == 201
    assert image.ask("POST", where, b"").status == 201  # its own by now
    assert Image(models, wire=image.wire).get(f"blobs/{digest(BIG)}").body == BIG


def test_many_images_on_one_layer(models):
    """Each brings it before the first of them is named: as many as may come at a time."""
    many = [Image(models, f"models/me/many-{i}", models.publisher) for i in range(80)]
    for image in many:
        image.push_blob(b"base")
        image.push_blob(b"{}")
    assert [image.put_manifest("v1", manifest(b"{}", [b"base"])).status for image in many] == [201] * len(many)
    assert {image.get(f"blobs/{digest(b'base')}").body for image in many} == {b"base"}


def test_mount_needs_the_right_to_read(mirrord):
    m = mirrord('repo "models" { protocol = "hosted" access { anonymous = none } }')
    base = Image(m, "models/me/base", m.token("me", "publish:models/me/*"))
    base.push("v1", [BIG])
    mine = Image(m, "models/you/img", m.token("you", "publish:models/you/*"))
    where = f"blobs/uploads/?mount={digest(BIG)}&from=models/me/base"
    assert mine.ask("POST", where, b"").status == 202
    both = Image(m, "models/you/img", m.token("both", "publish:models/you/*", "read:models/me/base/*"))
    assert both.ask("POST", where, b"").status == 201


# --- push: manifests ---

def test_by_digest_then_by_tag(image, reader):
    for data in (b"{}", b"layer"):
        image.push_blob(data)
    data = manifest(b"{}", [b"layer"])
    got = image.put_manifest(digest(data), data)
    assert got.status == 201 and got["location"].endswith(f"/manifests/{digest(data)}")
    assert reader.get(f"manifests/{digest(data)}").body == data and reader.tags() == []
    got = image.put_manifest(digest(data + b" "), data)
    assert got.status == 400 and errors(got) == ["DIGEST_INVALID"]
    for _ in range(2):  # again is no news
        assert image.put_manifest("v1", data).status == 201
    assert reader.tags() == ["v1"]


def test_bytes_and_type_stay_as_they_came(image, reader):
    for data in (b"{}", b"layer"):
        image.push_blob(data)
    data = b" \n" + manifest(b"{}", [b"layer"]).replace(b", ", b",\t ") + b"\n"
    assert image.put_manifest("odd", data, MANIFEST + "; charset=utf-8").status == 201
    got = reader.get("manifests/odd")
    assert got.body == data and got["content-type"] == MANIFEST


def test_what_a_manifest_names_must_be_here(image, reader):
    image.push_blob(b"{}")
    data = manifest(b"{}", [b"never sent"])
    for reference in ("v1", digest(data)):
        got = image.put_manifest(reference, data)
        assert got.status == 404 and errors(got) == ["MANIFEST_BLOB_UNKNOWN"]
    wrong = json.loads(manifest(b"{}", []))
    wrong["config"]["size"] = 3
    got = image.put_manifest("v1", text(wrong))
    assert got.status == 400 and errors(got) == ["SIZE_INVALID"]
    assert reader.tags() is None
    got = image.put_manifest("list", index([data]), INDEX)
    assert got.status == 404 and errors(got) == ["MANIFEST_BLOB_UNKNOWN"]


def test_layers_that_stay_away(image):
    """Their author keeps them elsewhere: a manifest may name them."""
    image.push_blob(b"{}")
    doc = json.loads(manifest(b"{}", []))
    doc["layers"] = [descriptor(b"far", "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", urls=["https://far.example/x"])]
    assert image.put_manifest("v1", text(doc)).status == 201


def test_what_is_no_manifest(image, reader):
    image.push_blob(b"{}")
    good = json.loads(manifest(b"{}", []))
    cases = [(b"", MANIFEST), (b"[]", MANIFEST), (b"{}", MANIFEST), (b"\xff\xfe", MANIFEST), (b'{"schemaVersion":2' * 1000, MANIFEST),
             (text(good), "text/plain"), (text(good), INDEX), (text(dict(good, mediaType=INDEX)), MANIFEST),
             (text(dict(good, schemaVersion=1)), MANIFEST), (text(dict(good, manifests=[])), MANIFEST),
             (text(dict(good, config=[])), MANIFEST), (text(dict(good, config={"digest": "x"})), MANIFEST),
             (text(dict(good, layers={})), MANIFEST), (text(dict(good, layers=[1])), MANIFEST),
             (text(dict(good, subject=[])), MANIFEST), (text(good)[:-1] + b', "config": {}}', MANIFEST),
             (text({"schemaVersion": 2, "manifests": [{}]}), INDEX),
             (text({"schemaVersion": 2, "manifests": [], "layers": []}), INDEX)]
    for data, kind in cases:
        got = image.put_manifest("v1", data, kind)
        assert got.status == 400 and errors(got) == ["MANIFEST_INVALID"], (data[:80], kind, got.body)
    got = image.put_manifest("v1", text(dict(good, annotations={"x": "y" * (4 << 20)})))
    assert got.status == 413 and errors(got) == ["MANIFEST_INVALID"]
    assert reader.tags() is None


def test_indexes(image, reader):
    one, two = image.push("one", [b"1"]), image.push("two", [b"2"])
    data = index([one, two])
    assert image.put_manifest("all", data, INDEX).status == 201
    got = reader.get("manifests/all")
    assert (got.body, got["content-type"]) == (data, INDEX)
    doc = json.loads(data)
    doc["mediaType"] = LIST
    assert image.put_manifest("docker", text(doc), LIST).status == 201
    assert reader.get("manifests/docker")["content-type"] == LIST


# --- content discovery ---

def test_tags_in_parts(image, reader):
    data = image.push("b", [b"x"])
    for tag in ("a", "c10", "c9", "Z", "_"):
        image.put_manifest(tag, data)
    everything = sorted(["b", "a", "c10", "c9", "Z", "_"])
    got = reader.get("tags/list")
    assert json.loads(got.body) == {"name": "me/img", "tags": everything} or json.loads(got.body)["tags"] == everything
    assert got["link"] is None
    path, seen = "tags/list?n=4", []
    for _ in range(2):
        got = reader.get(path)
        seen += json.loads(got.body)["tags"]
        if got["link"]:
            path = got["link"].split(">")[0][1:]
            assert got["link"].endswith('rel="next"')
    assert seen == everything
    assert json.loads(reader.get("tags/list?n=0").body)["tags"] == []
    assert json.loads(reader.get("tags/list?last=b").body)["tags"] == ["c10", "c9"]
    assert json.loads(reader.get("tags/list?n=1&last=b").body)["tags"] == ["c10"]


def test_referrers(image, reader):
    data = image.push("v1", [b"x"])
    empty = reader.get(f"referrers/{NOBODY}")
    assert empty.status == 200 and json.loads(empty.body)["manifests"] == [] and empty["content-type"] == INDEX
    subject = descriptor(data, MANIFEST)
    sbom = manifest(b"{}", [b"sbom"], subject=subject, artifactType="application/sbom", annotations={"who": "me"})
    image.push_blob(b"sbom")
    got = image.put_manifest(digest(sbom), sbom)
    assert got.status == 201 and got["oci-subject"] == digest(data)
    signature = image.push("sig", [b"signature"], subject=subject)
    doc = json.loads(reader.get(f"referrers/{digest(data)}").body)
    found = {d["digest"]: d for d in doc["manifests"]}
    assert doc["schemaVersion"] == 2 and doc["mediaType"] == INDEX and set(found) == {digest(sbom), digest(signature)}
    assert found[digest(sbom)] == {"mediaType": MANIFEST, "digest": digest(sbom), "size": len(sbom),
                                   "artifactType": "application/sbom", "annotations": {"who": "me"}}
    assert found[digest(signature)]["artifactType"] == "application/vnd.oci.image.config.v1+json"
    got = reader.get(f"referrers/{digest(data)}?artifactType=application/sbom")
    assert [d["digest"] for d in json.loads(got.body)["manifests"]] == [digest(sbom)]
    assert got["oci-filters-applied"] == "artifactType"
    assert image.ask("DELETE", f"manifests/{digest(sbom)}").status == 202
    doc = json.loads(reader.get(f"referrers/{digest(data)}").body)
    assert [d["digest"] for d in doc["manifests"]] == [digest(signature)]


def test_a_subject_may_come_later(image, reader):
    later = manifest(b"{}", [b"later"])
    sbom = image.push("sbom", [b"sbom"], subject=descriptor(later, MANIFEST))
    assert reader.get(f"manifests/{digest(later)}").status == 404
    doc = json.loads(reader.get(f"referrers/{digest(later)}").body)
    assert [d["digest"] for d in doc["manifests"]] == [digest(sbom)]


# --- content management ---

def test_delete_a_tag(image, reader):
    data = image.push("v1", [b"x"])
    image.put_manifest("v2", data)
    assert image.ask("DELETE", "manifests/v1").status == 202
    assert reader.get("manifests/v1").status == 404 and reader.tags() == ["v2"]
    assert reader.get(f"manifests/{digest(data)}").body == data
    got = image.ask("DELETE", "manifests/v1")
    assert got.status == 404 and errors(got) == ["MANIFEST_UNKNOWN"]


def test_delete_a_manifest(image, reader):
    """With it go its tags; other manifests keep what they share."""
    gone, stays = image.push("a", [b"x", b"both"]), image.push("stays", [b"both"])
    image.put_manifest("b", gone)
    assert image.ask("DELETE", f"manifests/{digest(gone)}").status == 202
    for reference in ("a", "b", digest(gone)):
        assert reader.get(f"manifests/{reference}").status == 404
    assert reader.tags() == ["stays"] and reader.get(f"manifests/{digest(stays)}").body == stays
    assert reader.get(f"blobs/{digest(b'both')}").body == b"both"
    got = image.ask("DELETE", f"manifests/{digest(gone)}")
    assert got.status == 404 and errors(got) == ["MANIFEST_UNKNOWN"]
    got = image.ask("DELETE", f"blobs/{digest(b'both')}")
    assert got.status == 405 and errors(got) == ["UNSUPPORTED"]


# --- who may ---

def test_rights(models, wire):
    data = b"x"
    for who, status, code in ((None, 401, "UNAUTHORIZED"), (models.token("r" + wire, "read:models/*"), 403, "DENIED"),
                              (models.token("o" + wire, "publish:models/you/*"), 403, "DENIED"), ("mrd_0_0_0", 401, "UNAUTHORIZED")):
        image = Image(models, token=who, wire=wire)
        for method, path in (("POST", "blobs/uploads/"), ("POST", f"blobs/uploads/?digest={digest(data)}"),
                             ("PUT", "manifests/v1"), ("DELETE", "manifests/v1"), ("PATCH", "blobs/uploads/" + "0" * 32)):
            got = image.ask(method, path, data)
            assert got.status == status and errors(got) == [code], (method, path)
            if status == 401:
                assert got["www-authenticate"].startswith("Bearer realm=")


def test_what_a_401_asks_for(mirrord, wire):
    """The token that a client is to fetch: the image as the client names it, and what is wanted of it."""
    m = mirrord('repo "models" { protocol = "hosted" access { anonymous = none } }')
    image = Image(m, wire=wire)
    for method, path, rights in (("GET", "manifests/v1", "pull"), ("GET", f"manifests/{NOBODY}", "pull"), ("GET", "tags/list", "pull"),
                                 ("GET", f"referrers/{NOBODY}", "pull"), ("PUT", "manifests/v1", "pull,push"),
                                 ("DELETE", "manifests/v1", "pull,push"), ("POST", "blobs/uploads/", "pull,push"),
                                 ("PATCH", "blobs/uploads/" + "0" * 32, "pull,push")):
        got = image.ask(method, path, b"x" if method in ("PUT", "POST", "PATCH") else None)
        assert got.status == 401 and scope(got) == f"repository:models/me/img:{rights}", (method, path, got["www-authenticate"])
    for method, rights in (("GET", "pull"), ("PUT", "pull,push")):  # a token that is none, or has ended
        got = Image(m, token="mrd_0_0_0", wire=wire).ask(method, "manifests/v1", b"x" if method == "PUT" else None)
        assert got.status == 401 and scope(got) == f"repository:models/me/img:{rights}", (method, got["www-authenticate"])
    assert scope(m.get("/v2/", wire)) is None


def scope(got):
    found = re.search(r'scope="([^"]*)"', got["www-authenticate"])
    return found and found[1]


def test_a_closed_repo(mirrord, wire):
    m = mirrord('repo "models" { protocol = "hosted" access { anonymous = none } }')
    image = Image(m, token=m.token("ci", "publish:models/me/*"), wire=wire)
    data = image.push("v1", [b"x"])
    paths = ("manifests/v1", f"manifests/{digest(data)}", f"blobs/{digest(b'x')}", "tags/list", f"referrers/{digest(data)}")
    for path in paths:
        assert Image(m, wire=wire).get(path).status == 401 and Image(m, token="anonymous", wire=wire).get(path).status == 401
        assert Image(m, token=m.token("o" + str(paths.index(path)), "read:models/you/*"), wire=wire).get(path).status == 403
        assert image.get(path).status == 200


def test_methods_that_are_not_taken(image):
    image.push("v1", [b"x"])
    for method, path in (("POST", "manifests/v1"), ("PUT", "tags/list"), ("PATCH", f"blobs/{digest(b'x')}"),
                         ("GET", "blobs/uploads/"), ("PUT", "blobs/uploads/"), ("DELETE", "tags/list"),
                         ("POST", "blobs/uploads/" + "0" * 32)):
        got = image.ask(method, path, b"" if method in ("PUT", "POST", "PATCH") else None)
        assert got.status == 405 and errors(got) == ["UNSUPPORTED"], (method, path)


# --- names ---

def test_names_of_any_depth_and_their_neighbours(models):
    """An image is no repository of files, whatever its name; both may have the same one."""
    anything = models.token("any", "publish:models/*")
    for name in ("img", "me/img", "me/deep/er/img", "me/blobs/uploads", "me/manifests/tags"):
        image = Image(models, f"models/{name}", anything)
        data = image.push("v1", [name.encode()])
        assert Image(models, f"models/{name}").get("manifests/v1").body == data
    assert models.put("/models/me/img/a.txt", b"file", token=anything).status == 201
    assert models.get("/models/me/img/a.txt").body == b"file" and Image(models).tags() == ["v1"]
    listed = [r["id"] for r in json.loads(models.get("/models/api/models").body)]
    assert listed == ["me/img"]


def test_at_a_listeners_root(mirrord):
    """There an image's name is all of the path; links and mounts are spelled as the client spells names."""
    port = free_port()
    m = mirrord(CONFIG + f'\nlisten "127.0.0.1:{port}" {{ root = "models" }}')
    token = m.token("ci", "publish:models/me/*")
    image = Image(m, "me/img", token)
    image.m = Elsewhere(m, port)
    data = image.push("v1", [BIG])
    assert image.get("manifests/v1").body == data and Image(m).get("manifests/v1").body == data
    second = Image(image.m, "me/second", token)
    got = second.ask("POST", f"blobs/uploads/?mount={digest(BIG)}&from=me/img", b"")
    assert got.status == 201 and got["location"] == f"/v2/me/second/blobs/{digest(BIG)}"
    for tag in ("a", "b"):
        image.put_manifest(tag, data)
    assert "</v2/me/img/tags/list?n=1&last=a>" in image.get("tags/list?n=1")["link"]


def test_a_login_at_a_listeners_root(mirrord):
    """The door of /v2/ is there too: the version, the token server that its 401 names, and a push with what that gives."""
    port = free_port()
    m = mirrord('repo "models" { protocol = "hosted" access { anonymous = none } }\n'
                f'listen "127.0.0.1:{port}" {{ root = "models" }}')
    ours = m.token("ci", "publish:models/me/*")
    door = Elsewhere(m, port)
    for path in ("/v2/", "/v2", "/v2/?ns=registry.example"):
        got = door.put(path, None, method="GET")
        assert got.status == 401 and errors(got) == ["UNAUTHORIZED"] and scope(got) is None, (path, got.status, got.body)
    realm = re.search(r'realm="([^"]*)"', got["www-authenticate"])[1]
    assert realm == f"http://127.0.0.1:{port}/v2/-/token"
    image = Image(door, "me/img")
    for method, rights in (("GET", "pull"), ("PUT", "pull,push")):
        got = image.ask(method, "manifests/v1", b"x" if method == "PUT" else None)
        assert got.status == 401 and scope(got) == f"repository:me/img:{rights}"
    basic = {"Authorization": "Basic " + base64.b64encode(f"any:{ours}".encode()).decode()}
    for query in ("", "?service=mirrord&account=any", "?scope=repository:me/img:pull,push&ns=registry.example"):
        got = door.put("/v2/-/token" + query, None, headers=basic, method="GET")
        assert got.status == 200 and json.loads(got.body)["token"] == ours
    image.token = json.loads(got.body)["token"]
    got = image.get("/v2/")
    assert (got.status, json.loads(got.body)) == (200, {})
    data = image.push("v1", [b"x"])
    assert image.get("manifests/v1").body == data and image.get(f"blobs/{digest(b'x')}").body == b"x"


class Elsewhere:
    """The same mirrord at another of its ports."""

    def __init__(self, m, port):
        self.m, self.base = m, f"http://127.0.0.1:{port}"

    def put(self, path, data, wire="h1", token=None, headers=None, method="PUT"):
        headers = dict(headers or {}, **({"Authorization": f"Bearer {token}"} if token else {}))
        return curl(self.base + path, headers=headers, method=method, data=data)


# --- what must hold ---

def test_over_a_restart(models):
    """Tags, blobs that no manifest names yet, and an upload half way: all go on."""
    image = Image(models, token=models.publisher)
    data = image.push("v1", [b"x"])
    image.push_blob(b"loose")
    at = image.begin()
    assert image.ask("PATCH", at, BIG[:1 << 20]).status == 202
    models.kill()
    models.start()
    assert image.get("manifests/v1").body == data
    assert image.head(f"blobs/{digest(b'loose')}").status == 200
    got = image.get(at)
    assert got.status == 204 and got["range"] == f"0-{(1 << 20) - 1}"
    assert image.ask("PATCH", at, BIG[1 << 20:2 << 20], content_range=f"{1 << 20}-{(2 << 20) - 1}").status == 202
    assert image.ask("PUT", f"{at}?digest={digest(BIG)}", BIG[2 << 20:]).status == 201
    assert image.put_manifest("v2", manifest(b"{}", [BIG, b"loose"])).status == 201
    models.kill()
    models.start()
    assert image.get(f"blobs/{digest(BIG)}").body == BIG and image.tags() == ["v1", "v2"]
    assert models.ctl("verify").returncode == 0


def test_a_client_that_stops(models):
    """What came of a body that breaks off is kept: the client asks how far it is, and goes on there."""
    image = Image(models, token=models.publisher)
    at, half = image.begin(), 1 << 20
    with socket.create_connection(("127.0.0.1", models.port)) as s:
        s.sendall(f"PATCH {at} HTTP/1.1\r\nHost: m\r\nAuthorization: Bearer {models.publisher}\r\n"
                  f"Content-Length: {len(BIG)}\r\n\r\n".encode() + BIG[:half])
        models.reaches("mirrord_http_received_bytes_total", half)
    got = image.get(at)
    assert got.status == 204
    here = int(got["range"].split("-")[1]) + 1
    assert 0 < here <= half
    here = here if here > 1 else 0
    got = image.ask("PATCH", at, BIG[here:], content_range=f"{here}-{len(BIG) - 1}")
    assert got.status == 202
    assert image.ask("PUT", f"{at}?digest={digest(BIG)}").status == 201
    assert image.get(f"blobs/{digest(BIG)}").body == BIG


def test_two_pushers_of_one_tag(models):
    """One of them is the last; both manifests are there, and nothing is torn."""
    images = [Image(models, token=models.publisher) for _ in range(8)]
    for i, image in enumerate(images):
        image.push_blob(b"{}")
        image.push_blob(b"layer %d" % i)
    docs = [manifest(b"{}", [b"layer %d" % i]) for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda x: x[0].put_manifest("v1", x[1]).status, zip(images, docs)))
    assert got == [201] * 8
    assert images[0].get("manifests/v1").body in docs and images[0].tags() == ["v1"]
    for doc in docs:
        assert images[0].get(f"manifests/{digest(doc)}").body == doc


def test_killed_while_images_come(models):
    """At whatever instant: what has a tag is whole, the next push goes on, and nothing needs repair."""
    def pusher(n, stop):
        image = Image(models, f"models/me/img{n}", models.publisher)
        for i in range(1000):
            if stop.is_set():
                return
            try:
                image.push(f"t{i}", [BIG[n * 1000 + i:1 << (12 + i % 9)], b"%d of %d" % (i, n)])
            except (AssertionError, OSError):
                return

    for rounds in range(4):
        stop = threading.Event()
        crowd = [threading.Thread(target=pusher, args=(n, stop)) for n in range(3)]
        for t in crowd:
            t.start()
        models.reaches("mirrord_http_received_bytes_total", (rounds + 1) * 300_000)
        models.kill()
        stop.set()
        for t in crowd:
            t.join()
        models.start()
        for n in range(3):
            image = Image(models, f"models/me/img{n}", "anonymous")
            for tag in image.tags() or []:
                doc = json.loads(image.get(f"manifests/{tag}").body)
                for layer in (doc["config"], *doc["layers"]):
                    got = image.get(f"blobs/{layer['digest']}")
                    assert got.status == 200 and digest(got.body) == layer["digest"]
    assert models.ctl("verify").returncode == 0
    Image(models, token=models.publisher).push("last", [BIG])


def test_no_space(mirrord):
    """507, in a registry's words; what was pushed stays, and when there is room again the push goes on."""
    m = mirrord('storage { quota = "8m" reserve = "1m" }\n' + CONFIG)
    image = Image(m, token=m.token("ci", "publish:models/me/*"))
    data = image.push("v1", [BIG])
    large = os.urandom(12 << 20)
    at = image.begin()
    for method, path in (("POST", f"blobs/uploads/?digest={digest(large)}"), ("PUT", f"{at}?digest={digest(large)}"), ("PATCH", at)):
        got = image.ask(method, path, large)
        assert got.status == 507 and errors(got) == ["UNSUPPORTED"] and b"space" in got.body, (method, got.status, got.body)
    assert image.get("manifests/v1").body == data and image.get(f"blobs/{digest(BIG)}").body == BIG
    m.config = m.config.replace('"8m"', '"64m"')
    m.reload()
    image.push("v2", [large])
    assert image.get(f"blobs/{digest(large)}").body == large and m.ctl("verify").returncode == 0


def test_versions_and_rollback(models):
    image = Image(models, token=models.publisher)
    one, two = image.push("v1", [b"1"]), image.push("v1", [b"2"])
    assert image.get("manifests/v1").body == two
    listed = models.ctl("snapshot", "ls", "models", "oci:me/img").stdout
    assert "v1" in listed and "v2" in listed
    models.ctl("snapshot", "rollback", "models", "oci:me/img", "v1")
    assert image.get("manifests/v1").body == one
    assert image.get(f"manifests/{digest(two)}").status == 404
