"""Lists of hosted repositories as a Hub answers them (api/models and its like): search, order, parts, and who sees what."""
import json
import re

import pytest

from system.test_hosted_hub import CONFIG, Hub, below, file

NAMES = ["me/alpha", "me/beta", "me/Gamma-BERT", "you/bert-base", "you/zeta"]


@pytest.fixture
def m(mirrord):
    return mirrord(CONFIG)


def fill(m, repo="models"):
    token = m.token("all-" + repo, f"publish:{repo}/*")
    for i, name in enumerate(NAMES):
        owner, rest = name.split("/")
        kind = {"type": "dataset"} if name == "you/zeta" else {}
        made = m.put(f"/{repo}/api/repos/create", json.dumps({"name": rest, "organization": owner, **kind}).encode(), token=token, method="POST")
        assert made.status == 200, made.body
    return token


def ids(m, query="", wire="h1", repo="models", kind="models", token=None):
    """All parts, by their links."""
    path, out, parts = f"/{repo}/api/{kind}{query}", [], 0
    while path:
        got = m.put(path, None, wire, token=token, method="GET")
        assert got.status == 200, got.body
        out += [row["id"] for row in json.loads(got.body)]
        link = re.fullmatch(r'<([^>]*)>; rel="next"', got["link"] or "")
        assert link or not got["link"]
        path, parts = (below(link[1]) if link else None), parts + 1
    return out if "limit" not in query else (out, parts)


def test_lists(m, wire):
    fill(m)
    assert ids(m, wire=wire) == ["me/Gamma-BERT", "me/alpha", "me/beta", "you/bert-base"]
    assert ids(m, kind="datasets", wire=wire) == ["you/zeta"] and ids(m, kind="spaces", wire=wire) == []
    assert ids(m, "?search=bert", wire) == ["me/Gamma-BERT", "you/bert-base"]
    assert ids(m, "?search=base+BERT", wire) == ["you/bert-base"]
    assert ids(m, "?author=me&search=bert&full=True&expand=sha", wire) == ["me/Gamma-BERT"]
    assert ids(m, "?author=nobody", wire) == ids(m, "?filter=text-generation", wire) == ids(m, "?pipeline_tag=x", wire) == ids(m, "?gated=true", wire) == []
    assert len(ids(m, "?gated=False&sort=downloads&direction=-1", wire)) == 4
    (row,) = json.loads(m.get("/models/api/models?search=alpha", wire).body)
    assert row["author"] == "me" and row["modelId"] == "me/alpha" and row["private"] is False and len(row["sha"]) == 40 and "pipeline_tag" not in row
    assert m.get("/models/api/kernels", wire).status == m.get("/models/api/collections", wire).status == 404


def test_parts(m, wire):
    token = fill(m)
    assert ids(m, "?limit=1", wire) == (["me/Gamma-BERT", "me/alpha", "me/beta", "you/bert-base"], 4)
    assert ids(m, "?limit=3&search=e", wire) == (["me/Gamma-BERT", "me/alpha", "me/beta", "you/bert-base"], 2)
    first = m.get("/models/api/models?limit=2&sort=lastModified", wire)
    got, parts = ids(m, "?limit=2&sort=lastModified", wire)
    assert sorted(got) == sorted(NAMES[:4]) and parts == 2 and first["link"].startswith(f"<{m.url('/models/api/models?', wire)}")
    # What is new shows at once, and where a list goes on does not move.
    made = m.put("/models/api/repos/create", json.dumps({"name": "aaa", "organization": "me"}).encode(), token=token, method="POST")
    assert made.status == 200
    second = m.get("/models/api/models?limit=2&cursor=0%3Ame%2Falpha", wire)
    assert [r["id"] for r in json.loads(second.body)] == ["me/beta", "you/bert-base"]
    assert "me/aaa" in ids(m, wire=wire)
    for odd in ("?cursor=", "?cursor=x", "?limit=x", "?limit=0", "?search=%zz", "?&&=&a", "?sort=", "?cursor=99999999999999999999:a"):
        assert m.get("/models/api/models" + odd, wire).status == 200, odd


def test_who_sees_what(m):
    token = fill(m, "closed")
    assert m.get("/closed/api/models").status == 401
    assert len(ids(m, repo="closed", token=token)) == 4
    assert ids(m, repo="closed", token=m.token("you", "read:closed/you/*")) == ["you/bert-base"]
    assert ids(m, repo="closed", token=m.token("data", "read:closed/datasets/*")) == []
    assert ids(m, repo="closed", kind="datasets", token=m.token("data2", "read:closed/datasets/*")) == ["you/zeta"]
    assert ids(m, repo="closed", token=m.token("one", "read:closed/me/beta/*")) == ["me/beta"]
    assert ids(m, repo="closed", token=m.token("none", "read:models/*")) == []


def test_a_version_more_comes_first(m):
    hub = Hub(m)
    fill(m)
    assert hub.commit(file("x", b"x"), name="beta").status == 200
    assert set(ids(m, "?sort=lastModified")) == set(NAMES[:4])
