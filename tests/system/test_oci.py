"""Registries of container images pulled through: manifests, tags, layers, tokens, and an upstream that lies, stops or is gone."""
import concurrent.futures
import hashlib
import json
import re
import subprocess
import threading

import pytest

from harness.curl import curl
from harness.mirrord import free_port, until
from harness.registry import INDEX, LIST2, MANIFEST, Registry, digest_of, noise

BASIC = "Basic cHVsbGVyOnMzY3JldA=="  # puller:s3cret


@pytest.fixture
def registry():
    made = []

    def start(**kw):
        made.append(Registry(**kw))
        return made[-1]

    yield start
    for r in made:
        r.close()


@pytest.fixture
def hub(mirrord):
    """hub(registry) is a mirrord in front of it; more: further lines of the repo, rest: of the file."""
    def start(r, more="", rest="", hosts=True, **kw):
        admitted = f'hosts = {{ "{r.token_host}", "{r.cdn_host}" }}' if hosts else ""
        m = mirrord(f'repo "hub" {{ protocol = "oci" origin = "{r.url}" {admitted} {more} }}\n{rest}', **kw)
        m.registry = r
        return m
    return start


def errors(reply):
    assert reply["content-type"].startswith("application/json"), reply.headers
    return [e["code"] for e in json.loads(reply.body)["errors"]]


# --- what there is --------------------------------------------------------------------------------------------------------

def test_manifests_by_tag_and_digest(registry, hub, wire):
    r = registry()
    image = r.image("team/app", "1.0")
    m = hub(r)
    for what in ("1.0", image.index, "1.0"):
        for head in (False, True):
            got = m.get(f"/v2/hub/team/app/manifests/{what}", wire, head=head)
            kind, data = r.repo("team/app")["manifests"][image.index]
            assert got.status == 200 and got["docker-content-digest"] == image.index and got["content-type"] == kind == INDEX
            assert got["etag"] == f'"{image.index}"' and got["content-length"] == str(len(data))
            assert got["docker-distribution-api-version"] == "registry/2.0"
            assert head or got.body == data
            assert not {"x-registry-says", "ratelimit-remaining"} & set(got.headers)
    assert (r.count("GET", "/manifests/"), r.count("HEAD")) == (1, 0)


def test_a_head_brings_the_tag(registry, hub):
    """Clients resolve a tag by HEAD and go on by digest: what a mirror keeps only on GET it would never have."""
    r = registry()
    image = r.image("team/app", "1.0")
    m = hub(r)
    assert m.get("/v2/hub/team/app/manifests/1.0", head=True)["docker-content-digest"] == image.index
    m.settle()
    r.down = True
    assert digest_of(m.get(f"/v2/hub/team/app/manifests/{image.index}").body) == image.index
    assert m.get("/v2/hub/team/app/manifests/1.0").status == 200


def test_types_without_parameters(registry, hub):
    r = registry()
    r.image("team/app", "1.0", docker=True)
    r.type_suffix = "; charset=utf-8"
    assert hub(r).get("/v2/hub/team/app/manifests/1.0")["content-type"] == LIST2


def test_one_accept_for_all(registry, hub):
    """A tag is one thing here, whatever a client would rather have."""
    r = registry()
    r.image("team/app", "1.0")
    m = hub(r)
    for accept in ("application/json", "text/html", "*/*"):
        assert m.get("/v2/hub/team/app/manifests/1.0", headers={"Accept": accept})["content-type"] == INDEX
    accepts = {h["Accept"] for h in r.heads}
    assert len(accepts) == 1 and INDEX in accepts.pop()


def test_no_ranges_of_manifests(registry, hub, wire):
    """containerd sends Range: bytes=0- with them."""
    r = registry()
    image = r.image("team/app", "1.0")
    m = hub(r)
    for _ in range(2):
        for what in ("1.0", image.index):
            got = m.get(f"/v2/hub/team/app/manifests/{what}", wire, headers={"Range": "bytes=0-9"})
            assert got.status == 200 and digest_of(got.body) == image.index and "content-range" not in got.headers


def test_blobs_and_their_ranges(registry, hub, wire):
    """From a layer that is not here yet, and from one that is."""
    r = registry()
    data = noise(3 << 20, 7)
    digest = r.blob("team/app", data)
    m = hub(r)
    part = m.get(f"/v2/hub/team/app/blobs/{digest}", wire, headers={"Range": "bytes=1000000-1999999"})
    assert part.status == 206 and part.body == data[1000000:2000000]
    for _ in range(2):
        whole = m.get(f"/v2/hub/team/app/blobs/{digest}", wire)
        assert whole.status == 200 and whole.body == data and whole["docker-content-digest"] == digest
        assert whole["content-type"] == "application/octet-stream" and whole["etag"] == f'"{digest}"'
        assert "immutable" in whole["cache-control"]
        m.settle()
    part = m.get(f"/v2/hub/team/app/blobs/{digest}", wire, headers={"Range": "bytes=-5"})
    assert part.status == 206 and part.body == data[-5:]
    assert m.get(f"/v2/hub/team/app/blobs/{digest}", wire, headers={"If-None-Match": f'"{digest}"'}).status == 304


def test_head_of_a_blob_costs_a_head(registry, hub):
    r = registry()
    digest = r.blob("team/app", noise(1 << 20, 3))
    m = hub(r)
    got = m.get(f"/v2/hub/team/app/blobs/{digest}", head=True)
    assert got["content-length"] == str(1 << 20) and got["docker-content-digest"] == digest
    assert r.count("GET", "/blobs/") == 0 and r.blob_bytes == 0


def test_a_layer_of_two_images_comes_once(registry, hub):
    r = registry()
    first, second = r.image("team/app", "1.0"), r.image("team/tool", "2.0")
    shared = first.layers[0]
    assert shared in second.layers
    m = hub(r)
    assert m.get(f"/v2/hub/team/app/blobs/{shared}").status == 200
    m.settle()
    r.down = True
    got = m.get(f"/v2/hub/team/tool/blobs/{shared}")
    assert got.status == 200 and digest_of(got.body) == shared


def test_where_rights_differ_layers_are_not_shared(registry, hub):
    r = registry()
    shared = r.blob("team/app", b"a layer" * 100)
    r.repo("team/other")
    m = hub(r, more="access { anonymous = none }")
    token = m.token("one", "read:hub/team/*")
    bearer = {"Authorization": f"Bearer {token}"}
    assert m.get(f"/v2/hub/team/app/blobs/{shared}", headers=bearer).status == 200
    m.settle()
    got = m.get(f"/v2/hub/team/other/blobs/{shared}", headers=bearer)
    assert got.status == 404 and errors(got) == ["BLOB_UNKNOWN"]


def test_sha512(registry, hub):
    """Verified like any other, though nothing of ours is called so."""
    r = registry()
    blob = r.blob("team/app", noise(300_000, 5), "sha512")
    manifest = r.manifest("team/app", {"schemaVersion": 2, "layers": []}, algorithm="sha512")
    bad = r.blob("team/app", noise(300_000, 6), "sha512")
    r.corrupt.add(bad)
    m = hub(r)
    for path, digest in ((f"blobs/{blob}", blob), (f"manifests/{manifest}", manifest)):
        for _ in range(2):
            got = m.get(f"/v2/hub/team/app/{path}")
            assert got.status == 200 and digest_of(got.body, "sha512") == digest == got["docker-content-digest"]
            m.settle()
    for _ in range(2):
        got = m.get(f"/v2/hub/team/app/blobs/{bad}")
        assert not got.whole or got.status == 502
    assert r.count("GET", blob) == 1


def test_tags_and_their_pages(registry, hub):
    r = registry()
    for tag in "abcde":
        r.image("team/app", tag, layers=1, size=100)
    m = hub(r, more='names = { "registry.example" }')
    for first in ("/v2/hub/team/app/tags/list?n=2", "/v2/team/app/tags/list?ns=registry.example&n=2"):
        seen, path = [], first
        while path:
            got = m.get(path)
            seen += json.loads(got.body)["tags"]
            link = re.fullmatch(r'<(/v2/[^>]*)>; rel="next"', got["link"] or "")
            path = link[1] if link else None
        assert seen == list("abcde"), first
        assert got["content-type"] == "application/json"
    got = m.get("/v2/hub/team/gone/tags/list")
    assert got.status == 404 and errors(got) == ["NAME_UNKNOWN"]


def test_referrers(registry, hub):
    r = registry()
    image = r.image("team/app", "1.0")
    signature = r.manifest("team/app", {"schemaVersion": 2, "mediaType": MANIFEST, "subject": {"digest": image.index}})
    m = hub(r)
    got = m.get(f"/v2/hub/team/app/referrers/{image.index}")
    assert got.status == 200 and got["content-type"] == INDEX
    assert [d["digest"] for d in json.loads(got.body)["manifests"]] == [signature]
    r.has_referrers = False
    assert m.get(f"/v2/hub/team/app/referrers/{signature}").status == 404


def test_the_hubs_own_names(registry, hub):
    r = registry()
    image = r.image("library/alpine", "3")
    m = hub(r, more='names = { "docker.io" }')
    for path in ("/v2/hub/alpine/manifests/3", "/v2/hub/library/alpine/manifests/3", "/v2/alpine/manifests/3?ns=docker.io"):
        assert m.get(path)["docker-content-digest"] == image.index, path
    assert r.count(part="/manifests/") == 1
    plain = hub(r, more='names = { "registry.example" }')
    assert plain.get("/v2/hub/alpine/manifests/3").status == 404


# --- ways to it -----------------------------------------------------------------------------------------------------------

def test_by_prefix_namespace_and_root(registry, hub, mirrord):
    r, other = registry(), registry()
    image = r.image("team/app", "1.0")
    theirs = other.image("team/app", "1.0", seed=2)
    port = free_port()
    m = mirrord(f'''repo "hub" {{ protocol = "oci" origin = "{r.url}" names = {{ "one.example" }} }}
        repo "second" {{ protocol = "oci" origin = "{other.url}" }}
        listen "127.0.0.1:{port}" {{ root = "hub" }}''')
    ask = lambda path: m.get(path)["docker-content-digest"]  # noqa: E731
    assert ask("/v2/hub/team/app/manifests/1.0") == ask("/v2/team/app/manifests/1.0?ns=one.example") == image.index
    assert ask("/v2/hub/team/app/manifests/1.0?ns=one.example") == image.index
    assert ask("/v2/second/team/app/manifests/1.0") == theirs.index
    assert ask(f"/v2/team/app/manifests/1.0?ns={other.host}") == theirs.index  # its origin's host, unless `names` says otherwise
    got = m.get("/v2/team/app/manifests/1.0?ns=one.example")
    assert got["oci-namespace"] == "one.example"
    for ns in (r.host, "evil.example", "127.0.0.1", "169.254.169.254"):
        got = m.get(f"/v2/hub/team/app/manifests/1.0?ns={ns}")
        assert got.status == 404 and errors(got) == ["NAME_UNKNOWN"], ns
    root = f"http://127.0.0.1:{port}/v2"
    assert curl(f"{root}/team/app/manifests/1.0")["docker-content-digest"] == image.index
    assert curl(f"{root}/second/team/app/manifests/1.0")["docker-content-digest"] == theirs.index


def test_an_origin_with_a_path(registry, hub, mirrord):
    """Harbor's projects, or another mirrord's repo: what stands in the origin's path begins every name there."""
    r = registry(auth="bearer")
    image = r.image("proxy/team/app", "1.0")
    m = mirrord(f'repo "hub" {{ protocol = "oci" origin = "{r.url}/proxy/" hosts = {{ "{r.token_host}" }} }}')
    assert m.get("/v2/hub/team/app/manifests/1.0")["docker-content-digest"] == image.index
    edge = mirrord(f'repo "far" {{ protocol = "oci" origin = "http://127.0.0.1:{m.port}/hub" }}')
    assert edge.get("/v2/far/team/app/manifests/1.0")["docker-content-digest"] == image.index


def test_what_is_no_image(registry, hub, wire):
    r = registry()
    r.image("team/app", "1.0")
    m = hub(r)
    for path, status, code in (("team/App/manifests/1.0", 400, "NAME_INVALID"), ("team/app/manifests/-x", 400, "MANIFEST_INVALID"),
                               ("team/app/blobs/sha256:12", 400, "DIGEST_INVALID"), ("team/app/blobs/x", 400, "DIGEST_INVALID"),
                               ("team/../app/tags/list", 400, "NAME_INVALID"), ("team/app", 404, "NAME_UNKNOWN"),
                               ("team/app/manifests/gone", 404, "MANIFEST_UNKNOWN"),
                               ("team/app/blobs/sha256:" + "0" * 64, 404, "BLOB_UNKNOWN")):
        got = m.get(f"/v2/hub/{path}", wire)
        assert (got.status, errors(got)) == (status, [code]), path
    got = m.get("/hub/team/app", wire)
    assert got.status == 404 and b"/v2/hub/" in got.body


def test_no_pushes(registry, hub, wire):
    r = registry()
    m = hub(r)
    for method, path in (("POST", "blobs/uploads/"), ("PUT", "manifests/1.0"), ("DELETE", "manifests/1.0"), ("PATCH", "blobs/uploads/1"),
                         ("GET", "blobs/uploads/1")):
        got = m.get(f"/v2/hub/team/app/{path}", wire, method=method)
        assert got.status == 405 and errors(got) == ["UNSUPPORTED"] and b"hosted" in got.body, method
    assert not r.asked


def test_rules(registry, hub):
    r = registry()
    r.image("team/app", "1.0")
    r.image("team/secret", "1.0")
    m = hub(r, more="rule '^team/secret/' { class = deny } rule '/manifests/1' { ttl = 0s }")
    got = m.get("/v2/hub/team/secret/manifests/1.0")
    assert got.status == 403 and errors(got) == ["DENIED"]
    for n in (0, 1, 2):
        assert m.get("/v2/hub/team/app/manifests/1.0").status == 200
        m.settle()
        assert r.count("HEAD") == n and r.count("GET") == 1


def test_a_setting_that_is_wrong(registry, mirrord):
    r = registry()
    m = mirrord(f'repo "hub" {{ protocol = "oci" origin = "{r.url}" }}')
    for more, word in ((f'repo "b" {{ protocol = "oci" origin = "{r.url}" sync {{ }} }}', "oci cannot be synced"),
                       (f'repo "b" {{ protocol = "oci" origin = "{r.url}" }}', "has the registry name"),
                       ('repo "b" { protocol = "oci" origin = "s3://bucket/x/" }', "origin"),
                       (f'repo "b" {{ protocol = "generic" origin = "{r.url}" names = {{ "x.example" }} }}', "names")):
        m.config = f'repo "hub" {{ protocol = "oci" origin = "{r.url}" }}\n{more}'
        m.write_config()
        run = m.ctl("config", "reload", check=False)
        assert run.returncode != 0 and word in run.stderr, run.stderr


# --- freshness ------------------------------------------------------------------------------------------------------------

STALE = "rule '/manifests/' { ttl = 0s } rule '/tags/' { ttl = 0s }"


def test_a_tag_that_moves(registry, hub):
    r = registry()
    old = r.image("team/app", "1.0")
    m = hub(r, more=STALE)
    ask = lambda: m.get("/v2/hub/team/app/manifests/1.0")["docker-content-digest"]  # noqa: E731
    assert ask() == old.index
    m.settle()
    new = r.image("team/app", "1.0", seed=9)
    assert ask() == new.index != old.index
    m.settle()
    assert m.get(f"/v2/hub/team/app/manifests/{new.index}").status == 200
    assert ask() == new.index
    assert (r.count("GET"), r.count("HEAD")) == (2, 2)
    del r.repo("team/app")["tags"]["1.0"]
    assert m.get("/v2/hub/team/app/manifests/1.0").status == 404


@pytest.mark.parametrize("trouble", ["429", "503", "down", "token"])
def test_stale_tags(registry, hub, trouble):
    """Whatever ails the registry, what was pulled once is pulled again."""
    r = registry(auth="bearer")
    r.expires_in = 1 if trouble == "token" else 300
    image = r.image("team/app", "1.0")
    m = hub(r, more=STALE)
    assert m.get("/v2/hub/team/app/manifests/1.0").status == 200
    m.settle()
    if trouble == "down":
        r.down = True
    elif trouble == "token":
        r.noes["/token"] = (503, {})
        r.good.clear()
    else:
        r.noes["/manifests/"] = (int(trouble), {"Retry-After": "120"} if trouble == "429" else {})
    for _ in range(2):
        got = m.get("/v2/hub/team/app/manifests/1.0")
        assert got.status == 200 and got["docker-content-digest"] == image.index
        assert "origin-trouble" in got["cache-status"]
    got = m.get("/v2/hub/team/app/manifests/2.0")
    assert got.status in (502, 503) and errors(got) == ["UNAVAILABLE"]


def test_a_registry_that_asks_for_rest(registry, hub):
    """Its 429 is honoured: nothing goes there meanwhile, whoever asks for whatever."""
    r = registry()
    r.image("team/app", "1.0")
    r.noes["/manifests/1.0"] = (429, {"Retry-After": "100"})
    m = hub(r)
    got = m.get("/v2/hub/team/app/manifests/1.0")
    assert got.status == 503 and int(got["retry-after"]) >= 1
    asked = len(r.asked)
    for path in ("manifests/1.0", "manifests/2.0", "tags/list"):
        assert m.get(f"/v2/hub/team/app/{path}").status == 503
    assert len(r.asked) == asked


def test_no_head_spoken(registry, hub):
    """A registry that takes no HEAD, or tells no digest, is asked by GET."""
    r = registry()
    image = r.image("team/app", "1.0")
    r.tells_digest = False
    m = hub(r, more=STALE)
    for _ in range(3):
        for head in (True, False):
            got = m.get("/v2/hub/team/app/manifests/1.0", head=head)
            assert got.status == 200 and got["docker-content-digest"] == image.index and got["etag"] == f'"{image.index}"'
        m.settle()


# --- lies and accidents ---------------------------------------------------------------------------------------------------

def test_bytes_that_are_others(registry, hub, wire):
    r = registry()
    image = r.image("team/app", "1.0", size=1 << 20)
    r.corrupt = {image.index, *image.layers, *image.manifests}
    m = hub(r)
    for what in ("1.0", image.index, image.manifests[0]):
        got = m.get(f"/v2/hub/team/app/manifests/{what}", wire)
        assert got.status == 502 and errors(got) == ["UNAVAILABLE"]
    got = m.get(f"/v2/hub/team/app/blobs/{image.layers[0]}", wire)
    assert not got.whole or got.status == 502  # cut, never given to the end; or all of it was here before the first byte went out
    m.reaches("mirrord_verify_failures_total", 3)


def test_a_digest_that_is_a_lie(registry, hub):
    """The tag's name for its bytes does not fit them: nobody gets either."""
    r = registry()
    image = r.image("team/app", "1.0")
    r.lies[image.index] = "sha256:" + "1" * 64
    m = hub(r)
    for _ in range(2):
        assert m.get("/v2/hub/team/app/manifests/1.0").status == 502
    assert m.get("/v2/hub/team/app/manifests/sha256:" + "1" * 64).status == 404
    assert m.get(f"/v2/hub/team/app/manifests/{image.index}").status == 200


def test_a_layer_that_is_cut(registry, hub):
    """It goes on where it was cut: the client notices nothing."""
    r = registry(redirects=True)
    data = noise(8 << 20, 3)
    digest = r.blob("team/app", data)
    r.cuts[digest] = 5 << 20
    m = hub(r)
    assert m.get(f"/v2/hub/team/app/blobs/{digest}").body == data
    assert r.blob_bytes < len(data) + (1 << 20)


def test_two_at_once_cost_one(registry, hub):
    r = registry(auth="bearer", redirects=True)
    image = r.image("team/app", "1.0", size=2 << 20)
    r.token_gate, r.manifest_gate, r.blob_gate = threading.Event(), threading.Event(), threading.Event()
    m = hub(r)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        tags = [pool.submit(m.get, "/v2/hub/team/app/manifests/1.0") for _ in range(8)]
        until(lambda: r.count(door="token") >= 1)
        r.token_gate.set()
        until(lambda: r.count("GET", "/manifests/") >= 2)  # the first was the one without a token
        r.manifest_gate.set()
        assert {digest_of(t.result().body) for t in tags} == {image.index}
        layers = [pool.submit(m.get, f"/v2/hub/team/app/blobs/{image.layers[0]}") for _ in range(8)]
        until(lambda: r.count("GET", door="cdn") >= 1)
        r.blob_gate.set()
        assert {digest_of(t.result().body) for t in layers} == {image.layers[0]}
    assert r.tokens == 1 and r.count("GET", "/manifests/", "registry") == 2 and r.count("GET", door="cdn") == 1


# --- tokens of the registry's ---------------------------------------------------------------------------------------------

def test_a_token_for_each_image(registry, hub):
    """Asked for once, when the registry says so, and shown to it alone."""
    r = registry(auth="bearer", redirects=True)
    one, two = r.image("team/app", "1.0"), r.image("team/tool", "1.0", seed=2)
    m = hub(r)
    for name, image in (("team/app", one), ("team/tool", two)):
        assert m.get(f"/v2/hub/{name}/manifests/1.0")["docker-content-digest"] == image.index
        for digest in image.layers:
            assert digest_of(m.get(f"/v2/hub/{name}/blobs/{digest}").body) == digest
    assert r.tokens == 2
    assert all(auth is None for door, _, _, auth in r.asked if door in ("token", "cdn"))
    assert {auth is not None for door, _, _, auth in r.asked if door == "registry"} == {True, False}
    scopes = [path for door, _, path, _ in r.asked if door == "token"]
    assert ["repository%3Ateam%2Fapp%3Apull" in scopes[0], "service=fake" in scopes[0]] == [True, True]


@pytest.mark.parametrize("key", ["token", "access_token"])
def test_a_token_that_is_too_old(registry, hub, key):
    """Void before its time, or past four fifths of it: another is fetched, and nobody is refused."""
    r = registry(auth="bearer")
    image = r.image("team/app", "1.0")
    r.token_key = key
    m = hub(r, more=STALE)
    assert m.get("/v2/hub/team/app/manifests/1.0").status == 200
    m.settle()
    r.good.clear()
    assert m.get("/v2/hub/team/app/manifests/1.0")["docker-content-digest"] == image.index
    assert r.tokens == 2
    m.settle()
    r.expires_in = 1
    r.good.clear()
    for n in range(3):
        until(lambda: m.get("/v2/hub/team/app/manifests/1.0").status == 200 and r.tokens > 3 + n)
    refused = [a for a in r.asked if a[0] == "registry" and a[3] is None]
    assert len(refused) == 1  # of an image once: from then on the token is there before it is asked for


def test_credentials_stay_at_home(registry, hub, tmp_path):
    """Those of the configuration go to the registry and its token server, a client's nowhere."""
    secret = tmp_path / "secret"
    secret.write_text(BASIC + "\n")
    secret.chmod(0o600)
    r = registry(auth="bearer", user=("puller", "s3cret"), anonymous=False, redirects=True)
    image = r.image("team/app", "1.0")
    m = hub(r, more=f'authorization = "file:{secret}"')
    theirs = {"Authorization": "Basic " + "bWluZTptaW5l"}
    assert m.get("/v2/hub/team/app/manifests/1.0", headers=theirs)["docker-content-digest"] == image.index
    assert digest_of(m.get(f"/v2/hub/team/app/blobs/{image.layers[0]}", headers=theirs).body) == image.layers[0]
    assert [auth for door, _, _, auth in r.asked if door == "token"] == [BASIC]
    assert {auth for door, _, _, auth in r.asked if door == "cdn"} == {None}
    assert not any("bWluZTptaW5l" in (auth or "") for _, _, _, auth in r.asked)
    assert "s3cret" not in m.log() and BASIC not in m.log() and "token-1" not in m.log()


def test_a_registry_with_passwords_alone(registry, hub, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(BASIC)
    secret.chmod(0o600)
    r = registry(auth="basic", user=("puller", "s3cret"))
    image = r.image("team/app", "1.0")
    m = hub(r, more=f'authorization = "file:{secret}"')
    assert m.get("/v2/hub/team/app/manifests/1.0")["docker-content-digest"] == image.index
    without = hub(r)
    got = without.get("/v2/hub/team/app/manifests/1.0")
    assert got.status == 403 and errors(got) == ["DENIED"]


def test_a_token_server_elsewhere(registry, hub, tmp_path):
    """A registry cannot send our credentials, or us, to whom it likes."""
    secret = tmp_path / "secret"
    secret.write_text(BASIC)
    secret.chmod(0o600)
    r, evil = registry(auth="bearer", user=("puller", "s3cret")), registry()
    r.image("team/app", "1.0")
    for realm in (evil.token_url + "/token", "http://169.254.169.254/token", "file:///etc/passwd", "//x/y", "https://[::1]:1/t", ""):
        r.challenge = f'Bearer realm="{realm}",service="fake"'
        m = hub(r, more=f'authorization = "file:{secret}"')
        got = m.get("/v2/hub/team/app/manifests/1.0")
        assert got.status in (403, 502), realm
        assert "Bearer" not in got.body.decode()
    assert not evil.asked


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_server_that_says_no(registry, hub, status):
    r = registry(auth="bearer", user=("puller", "s3cret"), anonymous=False)
    r.token_status = status
    r.image("team/app", "1.0")
    m = hub(r)
    got = m.get("/v2/hub/team/app/manifests/1.0")
    assert got.status == 403 and errors(got) == ["DENIED"]


def test_a_token_that_does_not_help(registry, hub):
    """Asked for again once, not for ever."""
    r = registry(auth="bearer")
    r.image("team/app", "1.0")
    r.challenge = f'Bearer realm="{r.token_url}/token",service="fake",scope="repository:other:pull"'
    m = hub(r)
    assert m.get("/v2/hub/team/app/manifests/1.0").status == 403
    assert r.tokens <= 2 and r.count(part="/manifests/") <= 3


def test_a_void_token_and_no_word_of_why(registry, hub):
    """A bare 401 voids the token that was shown; another is fetched, once a request."""
    r = registry(auth="bearer")
    r.image("team/app", "1.0")
    blobs = [r.blob("team/app", noise(1000, n)) for n in range(3)]
    m = hub(r)
    assert m.get("/v2/hub/team/app/manifests/1.0").status == 200 and r.tokens == 1
    r.good.clear()
    r.challenge = ""
    for digest in blobs[:2]:
        assert m.get(f"/v2/hub/team/app/blobs/{digest}").status == 200
    assert r.tokens == 2
    r.noes["/blobs/"] = (401, {})
    assert m.get(f"/v2/hub/team/app/blobs/{blobs[2]}").status == 403
    assert r.tokens == 3 and r.count("GET", blobs[2]) == 2


@pytest.mark.parametrize("images", [1, 20])
def test_a_token_server_that_hangs_for_some(registry, hub, images):
    """Who waits for a token keeps nobody from the registry whose token is good."""
    r = registry(auth="bearer")
    quick = [r.blob("team/quick", noise(1000, n)) for n in range(3)]
    slow = [f"team/slow{n % images}" for n in range(20)]
    for n, name in enumerate(slow):
        r.blob(name, noise(1000, 100 + n))
    m = hub(r, more="connections = 2")
    assert m.get(f"/v2/hub/team/quick/blobs/{quick[0]}").status == 200
    r.gated_scope, r.token_gate = "slow", threading.Event()
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        try:
            pulls = [pool.submit(m.get, f"/v2/hub/{name}/blobs/{d}") for name in set(slow) for d in r.repo(name)["blobs"]]
            until(lambda: r.count(part="slow", door="token") >= min(images, 16))
            for digest in quick[1:]:
                assert m.get(f"/v2/hub/team/quick/blobs/{digest}").status == 200
            assert r.count(part="slow", door="token") == min(images, 16) and not any(p.done() for p in pulls)
        finally:
            r.token_gate.set()
        assert [p.result().status for p in pulls] == [200] * 20
    assert r.tokens == 1 + images


def test_who_waits_for_a_token_may_leave(registry, hub):
    """Clients that go, and the mirror itself."""
    r = registry(auth="bearer")
    blobs = [r.blob("team/app", noise(1000, n)) for n in range(6)]
    r.token_gate = threading.Event()
    m = hub(r, more="connections = 1")
    clients = []
    try:
        for digest in blobs:
            clients.append(subprocess.Popen(["curl", "-qsS", "--noproxy", "*", "-o", "/dev/null", m.url(f"/v2/hub/team/app/blobs/{digest}")],
                                            stderr=subprocess.DEVNULL))
        until(lambda: r.count(door="token") == 1)
        for c in clients[::2]:
            c.kill()
            c.wait()
        assert m.get("/healthz").status == 200
        m.stop()
    finally:
        for c in clients:
            c.kill()
            c.wait()
    r.token_gate.set()
    m.start()
    assert [m.get(f"/v2/hub/team/app/blobs/{d}").status for d in blobs] == [200] * 6


# --- rights of the mirror's own -------------------------------------------------------------------------------------------

def test_who_may_read(registry, hub):
    r = registry()
    image = r.image("team/app", "1.0")
    m = hub(r, more="access { anonymous = none }")
    ping = m.get("/v2/")
    assert ping.status == 401 and ping["www-authenticate"].startswith("Bearer realm=")
    got = m.get("/v2/hub/team/app/manifests/1.0")
    assert got.status == 401 and errors(got) == ["UNAUTHORIZED"]
    assert 'scope="repository:hub/team/app:pull"' in got["www-authenticate"] and not r.asked
    got = m.get(f"/v2/team/app/manifests/1.0?ns={r.host}")
    assert got.status == 401 and 'scope="repository:team/app:pull"' in got["www-authenticate"] and not r.asked
    right, wrong = m.token("right", "read:hub/team/*"), m.token("wrong", "read:hub/other/*")
    got = m.get("/v2/hub/team/app/manifests/1.0", headers={"Authorization": f"Bearer {wrong}"})
    assert got.status == 403 and errors(got) == ["DENIED"]
    got = m.get("/v2/hub/team/app/manifests/1.0", headers={"Authorization": f"Bearer {right}"})
    assert got["docker-content-digest"] == image.index
    assert all("mrd_" not in (auth or "") for _, _, _, auth in r.asked)


# --- what stays -----------------------------------------------------------------------------------------------------------

def test_after_a_restart(registry, hub):
    r = registry()
    image = r.image("team/app", "1.0")
    m = hub(r)
    paths = ["manifests/1.0", f"manifests/{image.manifests[0]}", *(f"blobs/{d}" for d in image.layers + image.configs)]
    for p in paths:
        assert m.get(f"/v2/hub/team/app/{p}").status == 200
    m.settle()
    m.stop()
    r.down = True
    m.start()
    for p in paths:
        got = m.get(f"/v2/hub/team/app/{p}")
        assert got.status == 200 and got.whole, p
    rows = m.ctl_json("cache", "ls", "hub")
    assert len(rows["objects"] if isinstance(rows, dict) else rows) >= len(paths)
