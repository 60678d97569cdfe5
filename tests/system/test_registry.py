"""The door of /v2/: what clients of container registries find there before they have said what they want."""
import base64
import json

import pytest


def errors(reply):
    assert reply["content-type"].startswith("application/json")
    return [e["code"] for e in json.loads(reply.body)["errors"]]


def basic(password):
    return {"Authorization": "Basic " + base64.b64encode(f"any:{password}".encode()).decode()}


@pytest.fixture
def door(mirrord, origin):
    return mirrord(f'repo "files" {{ protocol = "generic" origin = "{origin.url}/" }}')


def test_the_version(door, wire):
    for path in ("/v2/", "/v2", "/v2/?x=y"):
        got = door.get(path, wire)
        assert (got.status, json.loads(got.body)) == (200, {})
        assert got["docker-distribution-api-version"] == "registry/2.0" and got["content-type"] == "application/json"
    assert door.get("/v2/", wire, head=True).status == 200
    got = door.get("/v2/", wire, method="DELETE")
    assert got.status == 405 and errors(got) == ["UNSUPPORTED"] and got["allow"] == "GET, HEAD"


def test_names_that_nobody_has(door, origin, wire):
    for path, word in (("/v2/gone/a/manifests/latest", "gone"), ("/v2/files/a/manifests/latest", "is not a registry of images"),
                       ("/v2/a/tags/list?ns=registry.example", "registry.example"), ("/v2/_catalog", "_catalog"),
                       ("/v2/a/tags/list?ns=127.0.0.1%3A" + str(origin.port), "no repo")):
        got = door.get(path, wire)
        assert got.status == 404 and errors(got) == ["NAME_UNKNOWN"] and word in got.body.decode(), path
    assert origin.requests == 0


def test_a_token_that_is_none_of_ours(door, wire):
    bad = {"Authorization": "Bearer mrd_0_0_0"}
    got = door.get("/v2/", wire, headers=bad)
    assert got.status == 401 and errors(got) == ["UNAUTHORIZED"]
    assert got["www-authenticate"].startswith('Bearer realm="http') and got["www-authenticate"].endswith('service="mirrord"')
    assert door.get("/v2/", wire, headers={"Authorization": "Bearer of-another-registry"}).status == 200


def test_the_token_server(door):
    """Who has a token gets it back, who has none gets one that says nothing, and a login with a wrong one is told so."""
    ours = door.token("ci", "read:files/*")
    got = door.get("/v2/-/token?service=mirrord&scope=repository:files/a:pull", headers=basic(ours))
    assert got.status == 200 and json.loads(got.body)["token"] == ours and got["cache-control"] == "no-store"
    assert door.get("/v2/", headers={"Authorization": f"Bearer {ours}"}).status == 200
    nobody = json.loads(door.get("/v2/-/token?service=mirrord").body)
    assert not nobody["token"].startswith("mrd_") and nobody["expires_in"] >= 60
    assert door.get("/v2/", headers={"Authorization": f"Bearer {nobody['token']}"}).status == 200
    got = door.get("/v2/-/token?service=mirrord&account=any", headers=basic("wrong"))
    assert got.status == 401 and errors(got) == ["UNAUTHORIZED"]
    got = door.get("/v2/-/token?scope=repository:files/a:pull,push", headers=basic("wrong"))
    assert got.status == 401
    got = door.get("/v2/-/token?scope=repository:files/a:pull", headers=basic("wrong"))
    assert got.status == 200 and json.loads(got.body)["token"] == nobody["token"]
    assert door.get("/v2/-/token", method="POST").status == 405


def test_too_fast(mirrord, origin):
    m = mirrord(f'repo "files" {{ protocol = "generic" origin = "{origin.url}/" }}\n'
                'limit "anonymous" { requests = "0.001/s" burst = 1 }')
    replies = [m.get("/v2/x/y/tags/list") for _ in range(20)]
    slow = [r for r in replies if r.status == 429]
    assert slow and errors(slow[0]) == ["TOOMANYREQUESTS"] and int(slow[0]["retry-after"]) >= 1
