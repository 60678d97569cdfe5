"""Whose word counts on how fresh a copy is: the operator's and the origin's; a client's no-cache only where a rule or a token says so."""
import concurrent.futures
import json
import threading
import time

import pytest

from harness.conda_channel import Channel
from harness.mirrord import until
from harness.python_index import Index
from harness.registry import Registry

HABITS = ["max-age=0", "no-cache", "max-age=1", "min-fresh=86400"]


class Document:
    """One that changes: `path` at the mirror, what it says now, and how often its origin was asked for it."""

    def __init__(self, m):
        self.m = m

    def get(self, **kw):
        return self.m.get(self.path, **kw)

    def shows(self, reply):
        assert reply.status == 200, reply
        return self.mark in reply.body.decode()

    def hold(self):
        """The origin answers nothing of what is new until release()."""

    def release(self):
        pass


class Page(Document):
    path, name = "/pypi/simple/demo/", "pypi"

    def __init__(self, mirrord, rule):
        self.index = Index()
        self.index.wheel("demo", "1.0")
        self.index.publish()
        super().__init__(mirrord(f'repo "pypi" {{ protocol = "pypi" origin = "{self.index.url}" {rule} }}'))
        self.mark = "demo-2.0"

    @property
    def thing(self):
        return self.index.origin.things["/simple/demo/"]

    def asked(self):
        return self.before + self.thing.requests

    before = 0

    def change(self, hold=False):
        self.before += self.thing.requests
        self.index.wheel("demo", "2.0")
        self.index.publish()
        self.thing.etag, self.thing.hold_at = '"second"', 0 if hold else -1

    def release(self):
        self.thing.go.set()

    def vanish(self):
        self.before += self.thing.requests
        self.index.origin.put("/simple/demo/", status=404)

    def deny(self):
        self.before += self.thing.requests
        self.index.origin.put("/simple/demo/", status=401)

    def close(self):
        self.index.down()


class Repodata(Page):
    path, name = "/forge/linux-64/repodata.json", "forge"

    def __init__(self, mirrord, rule):
        from harness.origin import Origin
        self.origin = Origin()
        self.channel = Channel(self.origin)
        self.channel.add("a-1.0-0.conda", b"a" * 3000)
        self.channel.publish()
        Document.__init__(self, mirrord(f'repo "forge" {{ protocol = "conda" origin = "{self.origin.url}" {rule} }}'))
        self.mark = "b-1.0-0"

    @property
    def thing(self):
        return self.origin.things["/linux-64/repodata.json"]

    def change(self, hold=False):
        self.before += self.thing.requests
        self.channel.add("b-1.0-0.conda", b"b" * 3000)
        self.channel.publish(modified=1700000100)
        self.thing.hold_at = 0 if hold else -1

    def vanish(self):
        self.before += self.thing.requests
        self.origin.put("/linux-64/repodata.json", status=404)

    def deny(self):
        self.before += self.thing.requests
        self.origin.put("/linux-64/repodata.json", status=401)

    def close(self):
        self.origin.close()


class Tag(Document):
    path, name = "/v2/hub/team/app/manifests/1.0", "hub"

    def __init__(self, mirrord, rule):
        self.registry = Registry()
        self.registry.image("team/app", "1.0", size=1000)
        super().__init__(mirrord(f'repo "hub" {{ protocol = "oci" origin = "{self.registry.url}" {rule} }}'))
        self.mark = "none yet"

    def asked(self):
        return self.registry.count(part="/manifests/1.0")

    def change(self, hold=False):
        image = self.registry.image("team/app", "1.0", size=1000, seed=2)
        self.mark = image.manifests[0]
        if hold:
            self.registry.manifest_gate = threading.Event()

    def release(self):
        self.registry.manifest_gate.set()

    def vanish(self):
        del self.registry.repo("team/app")["tags"]["1.0"]

    def deny(self):
        self.registry.noes["/manifests/1.0"] = (403, {})

    def close(self):
        if self.registry.manifest_gate is not None:
            self.registry.manifest_gate.set()
        self.registry.close()


class Branch(Document):
    path, name = "/hf/api/models/org/demo/revision/main", "hf"

    def __init__(self, mirrord, rule, hub):
        self.hub, self.go = hub, threading.Event()
        self.demo = hub.repo("org/demo", files={"config.json": b"{}"})
        super().__init__(mirrord(hub.config(more=rule)))
        self.mark = "none yet"

    def asked(self):
        return sum(1 for _, target, _ in self.hub.calls if target == "/api/models/org/demo/revision/main")

    def change(self, hold=False):
        self.demo.commit({"config.json": b"{1}"})
        self.mark = self.demo.sha
        if hold:
            self.hub.order("/revision/main", self.go.wait)

    def release(self):
        self.go.set()

    def vanish(self):
        del self.hub.repos["models", "org/demo"]

    def deny(self):
        self.demo.private = True

    def close(self):
        self.go.set()


@pytest.fixture(params=[Page, Repodata, Tag, Branch], ids=lambda kind: kind.name)
def document(request, mirrord, hub):
    made = []

    def start(rule=""):
        made.append(request.param(mirrord, rule, *([hub] if request.param is Branch else [])))
        return made[-1]
    yield start
    for d in made:
        d.close()


def together(n, work):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return [f.result() for f in [pool.submit(work) for _ in range(n)]]


# --- while it is fresh ----------------------------------------------------------------------------------------------------

def test_a_clients_habit_does_not_reach_the_origin(document):
    """pip sends max-age=0 with every page: the issue's figure is one request to the origin for each, ten seconds later."""
    d = document("rule '' { ttl = 1h }")
    assert d.get().status == 200
    d.m.settle()
    before = d.asked()
    time.sleep(6)  # longer than the floor under a client's no-cache that other repos have
    for habit in HABITS * 3:
        assert d.get(headers={"Cache-Control": habit}).status == 200
    assert before == d.asked() == 1


def test_a_rule_lets_clients_refresh(document):
    d = document("rule '' { ttl = 1h refresh_floor = 0s }")
    if d.name == "hf":
        pytest.skip("what a client asks of a branch is answered by the listing that all share")
    assert d.get().status == 200
    d.m.settle()
    d.change()
    assert d.shows(d.get(headers={"Cache-Control": "max-age=0"}))


def test_what_is_absent_is_asked_for_once(mirrord):
    """A client's no-cache is heard for a no as little as for a page."""
    with Index() as index:
        m = mirrord(f'repo "pypi" {{ protocol = "pypi" origin = "{index.url}" rule "" {{ neg_ttl = 1h }} }}')
        for habit in HABITS * 3:
            assert m.get("/pypi/simple/none/", headers={"Cache-Control": habit}).status == 404
        assert index.origin.misses == ["/simple/none/"]


def test_an_absence_is_remembered_until_a_restart(mirrord):
    """It is in memory alone, and no answer claims an absence that the origin does not confirm: clients would go on to another index."""
    with Index() as index:
        m = mirrord(f'repo "pypi" {{ protocol = "pypi" origin = "{index.url}" rule "" {{ neg_ttl = 1h }} }}')
        assert m.get("/pypi/simple/none/").status == 404
        index.origin.close()
        assert m.get("/pypi/simple/none/").status == 404
        m.stop()
        m.start()
        assert m.get("/pypi/simple/none/").status in (502, 504)


# --- when it is stale -----------------------------------------------------------------------------------------------------

def stale(d):
    """The copy goes stale, its origin has another and says nothing yet: one revalidation, whoever asks."""
    assert d.get().status == 200
    d.m.settle()
    d.change(hold=True)
    before = d.asked()
    until(lambda: not d.shows(d.get(headers={"Cache-Control": "max-age=0"})) and d.asked() > before)
    return before


def test_stale_is_served_while_it_is_revalidated(document):
    d = document("rule '' { ttl = 1s stale_while = 1h }")
    before = stale(d)
    for reply in together(8, lambda: d.get(headers={"Cache-Control": "no-cache"})) + [d.get()]:
        assert not d.shows(reply)
        assert d.name == "hf" or reply["cache-status"] == "mirrord; hit; detail=stale-while-revalidate"
    # A tag's HEAD says that it is another one, a GET brings it.
    assert d.asked() - before <= (2 if d.name == "hub" else 1)
    d.release()
    until(lambda: d.shows(d.get()))


def test_without_stale_while_the_origin_is_awaited(document):
    d = document("rule '' { ttl = 1s stale_while = 0s }")
    assert d.get().status == 200
    d.m.settle()
    d.change()
    time.sleep(2)
    assert d.shows(d.get())


def test_a_stale_copy_ends_with_its_original(document):
    """One client is given the old copy once more; then it is gone, and its absence is remembered."""
    d = document("rule '' { ttl = 1s stale_while = 1h neg_ttl = 1h }")
    assert d.get().status == 200
    d.m.settle()
    d.vanish()
    until(lambda: d.get().status in (401, 404))
    before = d.asked()
    for _ in range(4):
        assert d.get(headers={"Cache-Control": "max-age=0"}).status in (401, 404)
    assert d.asked() == before


def test_a_stale_copy_is_not_given_once_the_origin_has_refused_it(document):
    d = document("rule '' { ttl = 1s stale_while = 1h neg_ttl = 1h }")
    assert d.get().status == 200
    d.m.settle()
    d.deny()
    until(lambda: d.get().status >= 400)
    for _ in range(8):
        assert d.get().status >= 400


READER = {"Authorization": "Bearer hf_reader"}


def test_a_right_is_never_stale(mirrord, hub):
    """Whatever a rule says: a right that was taken away is gone when its time is over, not one answer later."""
    hub.users["hf_reader"] = "reader"
    demo = hub.repo("org/demo", files={"model.bin": b"weights"}, private=True, readers={"hf_reader"})
    m = mirrord(hub.config(more="rule '' { ttl = 1s neg_ttl = 1s stale_while = 1h }"))
    for path in ("/hf/api/models/org/demo/revision/main", f"/hf/api/models/org/demo/revision/{demo.sha}"):
        assert m.get(path, headers=READER).status == 200 and m.get(path).status == 401
    demo.readers = set()
    time.sleep(2)
    for path in ("/hf/api/models/org/demo/revision/main", f"/hf/api/models/org/demo/revision/{demo.sha}"):
        assert m.get(path, headers=READER).status == 404


@pytest.mark.parametrize("rev", ["main", None], ids=["branch", "commit"])
def test_that_a_repository_is_open_is_never_stale(mirrord, hub, rev):
    demo = hub.repo("org/demo", files={"config.json": b"{}", "model.bin": b"weights"})
    m = mirrord(hub.config(more="rule '' { ttl = 1s neg_ttl = 1s stale_while = 1h }"))
    path = f"/hf/org/demo/resolve/{rev or demo.sha}/model.bin"
    assert m.get(path).body == b"weights"
    demo.gated = True
    time.sleep(2)
    assert m.get(path).status == 401


def test_a_refresh_ends_a_right(mirrord, hub):
    demo = hub.repo("org/demo", files={"config.json": b"{}", "model.bin": b"weights"}, gated=True, readers={"hf_reader"})
    hub.users["hf_reader"] = "reader"
    m = mirrord(hub.config())
    path = "/hf/org/demo/resolve/main/model.bin"
    assert m.get(path, headers=READER).body == b"weights"
    m.settle()
    demo.readers = set()
    m.ctl("cache", "refresh", "hf", "rights/")
    assert m.get(path, headers=READER).status == 403 and m.get(path).status == 401


def test_indexes_of_an_archive_are_not_mixed(mirrord, origin):
    """apt holds Packages against the Release that it has just read: a generic repo gives nothing stale unless a rule says so."""
    m = mirrord(f"""repo "deb" {{ protocol = "generic" origin = "{origin.url}/" rule '^dists/' {{ ttl = 1s }} }}""")
    for generation in (b"one", b"two", b"three"):
        for name in ("Release", "Packages"):
            origin.put(f"/dists/{name}", body=generation, etag=f'"{generation.decode()}"')
        time.sleep(2)
        assert [m.get(f"/deb/dists/{name}").body for name in ("Release", "Packages")] == [generation] * 2
        m.settle()


# --- who may force it -----------------------------------------------------------------------------------------------------

def test_a_token_forces_a_refresh(document):
    d = document("rule '' { ttl = 1h }")
    may = {"Authorization": f"Bearer {d.m.token('ops', f'sync:{d.name}/*', f'read:{d.name}/*')}", "Cache-Control": "no-cache"}
    may_not = {"Authorization": f"Bearer {d.m.token('ci', f'read:{d.name}/*', 'sync:other/*')}", "Cache-Control": "no-cache"}
    assert d.get().status == 200
    d.m.settle()
    d.change()
    before = d.asked()
    assert not d.shows(d.get(headers=may_not)) and d.asked() == before
    assert d.shows(d.get(headers=may)) and d.asked() > before
    d.m.settle()
    before = d.asked()
    assert d.shows(d.get()) and d.asked() == before


def test_mirrorctl_refreshes(document):
    d = document("rule '' { ttl = 1h }")
    assert d.get().status == 200
    d.m.settle()
    d.change()
    key = json.loads(d.m.ctl("--json", "cache", "ls", d.name).stdout)[0]["key"]
    assert not d.shows(d.get())
    assert d.m.ctl("cache", "refresh", d.name, key).stdout == "marked 1 object: it is revalidated with the origin at the next request for it\n"
    assert d.m.ctl_json("cache", "refresh", d.name, key, "x") == {"marked": 0}  # it is marked
    assert d.shows(d.get())
    d.m.settle()
    before = d.asked()
    assert d.shows(d.get()) and d.asked() == before


def test_a_refresh_outlives_a_restart(document):
    d = document("rule '' { ttl = 1h }")
    assert d.get().status == 200
    d.m.settle()
    d.change()
    d.m.ctl("cache", "refresh", d.name, "")
    d.m.stop()
    d.m.start()
    assert d.shows(d.get())


def test_a_refresh_asks_anew_for_what_was_absent(mirrord):
    with Index() as index:
        m = mirrord(f'repo "pypi" {{ protocol = "pypi" origin = "{index.url}" rule "" {{ neg_ttl = 1h }} }}')
        assert m.get("/pypi/simple/late/").status == 404
        index.wheel("late", "1.0")
        index.publish()
        assert m.get("/pypi/simple/late/").status == 404
        m.ctl("cache", "refresh", "pypi", "simple/late/")
        assert m.get("/pypi/simple/late/").status == 200


def test_a_refresh_leaves_alone_what_never_changes(mirrord):
    with Index() as index:
        name = index.wheel("demo", "1.0")
        index.publish()
        m = mirrord(f'repo "pypi" {{ protocol = "pypi" origin = "{index.url}" }}')
        page = json.loads(m.get("/pypi/simple/demo/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}).body)
        file = page["files"][0]["url"].removeprefix("../../")
        assert m.get(f"/pypi/{file}").status == 200
        m.settle()
        assert m.ctl("cache", "refresh", "pypi", "").stdout.startswith("marked 1 object:")
        assert m.get(f"/pypi/{file}").status == 200 and index.origin.stats(f"/pool/{name}").requests == 1


def test_an_origin_that_is_down_after_a_refresh(document):
    """What was marked is not lost: trouble gives the old copy, and says so."""
    d = document("rule '' { ttl = 1h }")
    assert d.get().status == 200
    d.m.settle()
    d.m.ctl("cache", "refresh", d.name, "")
    if d.name == "hf":
        d.hub.down()
    else:
        d.close()
    assert d.get().status == 200


def test_refresh_in_words(mirrord):
    m = mirrord("""repo "mine" { protocol = "hosted" }
                   repo "whole" { protocol = "generic" origin = "http://127.0.0.1:9/" sync { list = index } }""")
    for args, rc, words in ((("mine", ""), 64, "its requests never ask an origin"), (("whole", ""), 64, "its requests never ask an origin"), (("none", "x"), 66, "none"), (("mine",), 64, "REPO PREFIX")):
        done = m.ctl("cache", "refresh", *args, check=False)
        assert done.returncode == rc and words in done.stderr, done
