"""What a Hub lists in parts, asked for in part and as a whole: each question has its own answer, whichever came first."""
import json

import pytest

FILES = {f"f{i}.txt": b"%d" % i for i in range(6)}


@pytest.fixture
def data(mirrord, hub):
    hub.page = 2
    hub.bucket("org/data", FILES)
    hub.repo("org/demo", files=FILES)
    return mirrord("threads = 1\n" + hub.config())  # both come to one loop


def paths_of(reply):
    assert reply.status == 200
    return [e["path"] for e in json.loads(reply.body)]


def infos(m, path, body, kind):
    return paths_of(m.get(path, args=["-H", f"Content-Type: {kind}", "--data-binary", body]))


def test_a_buckets_paths_and_its_listing(data):
    def part():
        reply = data.get("/hf/api/buckets/org/data/tree?recursive=true")
        assert len(paths_of(reply)) == 2 and 'rel="next"' in reply["link"]

    def whole():
        body = json.dumps({"paths": ["f5.txt", "f0.txt", "zz"]})
        assert infos(data, "/hf/api/buckets/org/data/paths-info", body, "application/json") == ["f0.txt", "f5.txt"]

    for ask in (part, whole) * 3:
        ask()


def test_a_repositorys_paths_and_its_listing(data):
    def part():
        reply = data.get("/hf/api/models/org/demo/tree/main?expand=true")
        assert len(paths_of(reply)) == 2 and 'rel="next"' in reply["link"]

    def whole():
        reply = data.get("/hf/api/models/org/demo/paths-info/main", args=["-d", "paths=f5.txt&paths=f0.txt&expand=true"])
        assert reply.status == 200 and all("lastCommit" in e for e in json.loads(reply.body))

    for ask in (part, whole) * 3:
        ask()


def test_many_paths_with_details(data, hub):
    """As many as a request takes, some of them twice. Looking through a folder for each of them took a minute."""
    hub.page = 10000
    hub.repo("org/wide", files={f"{folder}f{i:04}": b"x" for folder in ("", "d/") for i in range(2000)})
    names = [f"{folder}f{i:04}" for i in (0, 7, 1999) for folder in ("", "d/")] * 600
    reply = data.get("/hf/api/models/org/wide/paths-info/main", args=["-d", "&".join(["paths=" + n for n in names] + ["paths=none", "expand=true"])])
    assert paths_of(reply) == names and all("lastCommit" in e for e in json.loads(reply.body))


def test_a_list_goes_on_however_many_fields_stand_before_its_link(data, hub):
    """An answer keeps so many fields. With its Link lost the first part of a list passed for all of it, for ever."""
    hub.fields_before = {f"X-More-{i}": str(i) for i in range(30)}
    assert paths_of(data.get("/hf/api/models/org/demo/tree/main?recursive=true")) == list(FILES)
    assert infos(data, "/hf/api/buckets/org/data/paths-info", json.dumps({"paths": ["f5.txt", "zz"]}), "application/json") == ["f5.txt"]


def test_no_question_of_a_client_stands_for_a_part(data):
    """Parts are kept under the address of the first and a number."""
    for i in (1, 2):
        assert data.get(f"/hf/api/buckets/org/data/tree?recursive=true+{i}").status == 200
        data.settle()
    body = json.dumps({"paths": list(FILES) + ["zz"]})
    assert infos(data, "/hf/api/buckets/org/data/paths-info", body, "application/json") == list(FILES)


def test_a_large_listing_is_worded_once_and_not_by_a_loop(mirrord, hub):
    """Above 8 MiB a listing was worded by the loop, for each who asked. It is a document that makers make: made once, then shared."""
    files = {f"a-folder-with-a-name/{i:06}-{'x' * 200}.txt": b"" for i in range(28000)}
    hub.page = 50000
    hub.repo("org/wide", files=files)
    hub.repo("meta/wide", files=files, private=True, readers={"hf_alice", "hf_bob"})
    hub.users.update({"hf_alice": "alice", "hf_bob": "bob"})
    m = mirrord("threads = 1\n" + hub.config(more="rule '^api' { ttl = 1h }"))

    def listed(repo="org/wide", token="", query="?recursive=true"):
        sha = hub.repos["models", repo].sha
        reply = m.get(f"/hf/api/models/{repo}/tree/{sha}{query}", headers={"Authorization": f"Bearer {token}"} if token else {})
        assert reply.whole and reply.status == 200, reply.status
        return reply

    def made():
        return m.metric("mirrord_documents_made_total")
    first = listed()
    assert len(first.body) > 8 << 20 and paths_of(first) == ["a-folder-with-a-name", *sorted(files)] and made() == 1
    assert all(listed().body == first.body for _ in range(3)) and made() == 1
    assert first["x-repo-commit"] and first["cache-control"] == "no-cache" and first["content-type"].startswith("application/json")
    assert paths_of(listed(query="")) == ["a-folder-with-a-name"] and made() == 2
    alice = listed("meta/wide", "hf_alice")
    assert alice.body == first.body and alice["cache-control"] == "private, no-cache" and made() == 3
    assert listed("meta/wide", "hf_alice").body == first.body and made() == 3
    assert listed("meta/wide", "hf_bob").body == first.body
    sha = hub.repos["models", "meta/wide"].sha
    assert m.get(f"/hf/api/models/meta/wide/tree/{sha}?recursive=true").status == 401
    assert m.get(f"/hf/api/models/org/wide/tree/{hub.repos['models', 'org/wide'].sha}/none").status == 404
