"""The pages of a repo's repositories: what they tell, to whom, and that nothing in a name becomes anything else."""
import base64
import hashlib
import html.parser
import re
import subprocess
import urllib.parse

import pytest

from harness.hub import Big
from harness.mirrord import SLOW

FILES = {"README.md": b"# demo\n", "config.json": b"{}", "model.safetensors": Big(3 << 20)}
EVIL = '"><script>alert(1)</script>\'&amp;<b>'
MODELS = 'repo "models" { protocol = "hosted" }\n'


class Page(html.parser.HTMLParser):
    """Its tags, its text, its links: what a browser without scripts would make of it."""

    def __init__(self, reply):
        super().__init__()
        self.tags, self.text, self.links, self.attributes = [], "", [], []
        assert reply.status == 200 and reply["content-type"] == "text/html; charset=utf-8", reply
        assert reply["x-content-type-options"] == "nosniff" and reply["cache-control"] == "no-store"
        policy = reply["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        source = reply.body.decode()
        for tag in ("style", "script"):  # ours, and admitted by what they are alone
            ours = re.search(f"<{tag}>(.*?)</{tag}>", source, re.S)[1]
            assert f"{tag}-src 'sha256-{base64.b64encode(hashlib.sha256(ours.encode()).digest()).decode()}';" in policy
            source = source.replace(f"<{tag}>{ours}</{tag}>", "")
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.links += [v for k, v in attrs if k == "href"]

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def demo(hub):
    return hub.repo("org/demo", files=FILES)


@pytest.fixture
def hf(mirrord, hub, demo):
    m = mirrord(hub.config() + "\n" + MODELS)
    assert m.get("/hf/org/demo/resolve/main/model.safetensors").status == 200
    m.settle()
    return m


def links_of(reply):
    return re.findall('href="([^"]*)"', reply.body.decode())


def page(m, path, wire="h1", **kw):
    return Page(m.get("/-/repos/" + path, wire, **kw))


def test_list_and_one(hf, hub, demo, wire):
    calls = len(hub.calls)
    assert "/-/repos/hf/" in links_of(hf.get("/", wire))
    listed = page(hf, "hf/", wire)
    assert "/-/repos/hf/org/demo" in listed.links and "1 of 3" in listed.text and "svg" in listed.tags
    assert f"HF_ENDPOINT={hf.url('/hf', wire)}" in listed.text
    one = page(hf, "hf/org/demo", wire)
    for said in ("main", demo.sha[:12], "1 of 3 files are here", "model.safetensors", "whole", "absent",
                 f"HF_ENDPOINT={hf.url('/hf', wire)} hf download org/demo --revision main",
                 'snapshot_download("org/demo", revision="main")', "trainagent pull hf/org/demo@main",
                 "mirrorctl hf prefetch hf/org/demo@main"):
        assert said in one.text, said
    assert "import os\nos.environ" in one.text and "\ufffd" not in one.text
    assert one.tags.count("tr") == 1 + 1 + 1 + 3
    assert "/-/repos/hf/org/demo?rev=main" in one.links
    assert "script" not in one.tags and len(hub.calls) == calls, "looking asks the Hub nothing"
    assert hf.get("/-/repos/hf/org/demo", wire, head=True).status == 200


def test_a_time_says_what_it_is_of(hf):
    """A prefetch or an upload is nobody's question: of what was pulled it is when the Hub was asked, of our own when it was made."""
    assert hf.put("/models/me/own/x", b"x", token=hf.token("ci", "publish:models/*")).status == 201
    pulled, own = page(hf, "hf/org/demo").text, page(hf, "models/me/own").text
    assert "Checked at the Hub" in pulled and re.search(r"commit \w+, checked at the Hub \d+\s\w+\s+ago", pulled), pulled
    assert "Made" in own and re.search(r"commit \w+, made \d+\s\w+\s+ago", own), own
    for text in (pulled, own, page(hf, "hf/").text, page(hf, "models/").text):
        assert not re.search("asked", text, re.I)


def test_folders_of_hosted_repositories_are_linked(hf, hub):
    token = hf.token("ci", "publish:models/*")
    names = ("me/own", "datasets/me/rows")
    for name in names:
        assert hf.put(f"/models/{name}/sub/x", b"x", token=token).status == 201
    listed = page(hf, "models/").links
    for name in names:
        assert f"/models/{name}/" in listed and f"/models/{name}/" in page(hf, f"models/{name}").links
        folder = hf.get(f"/models/{name}/", headers={"Accept": "text/html"})
        assert folder.status == 200 and any(x.endswith("sub/") for x in links_of(folder))
    assert not [x for x in page(hf, "hf/").links + page(hf, "hf/org/demo").links if x.startswith("/hf/")], "a Hub's have no folders here"


def test_search_and_pages(hf, hub):
    token = hf.token("ci", "publish:models/*")
    for i in range(105):
        assert hf.put(f"/models/me/n{i:03}/x", b"x", token=token).status == 201
    first = page(hf, "models/")
    assert sum(re.fullmatch(r"/-/repos/models/me/n\d+", x) is not None for x in first.links) == 100
    more = next(x for x in first.links if "page=1" in x)
    second = page(hf, "models/" + more)
    assert sum(re.fullmatch(r"/-/repos/models/me/n\d+", x) is not None for x in second.links) == 5
    assert [x for x in page(hf, "models/?q=N10").links if x.startswith("/-/repos/models/me/")] == [f"/-/repos/models/me/n10{i}" for i in range(5)]
    assert "No repository has this" in page(hf, "models/?q=%ff%22%3E").text
    assert page(hf, "models/?page=18446744073709551615").tags
    one = page(hf, "models/me/n000")
    assert "trainagent pull models/me/n000@main" in one.text and "prefetch" not in one.text


def test_hostile_names(hf, hub):
    """Of files, revisions and searches; nothing opens a tag, an attribute, a shell's or Python's string, or turns the text."""
    turned = "a\u202egnp.exe"
    hub.repo("org/evil", files={EVIL: b"1", "ünï/ж.txt": b"2", turned: b"3", "x" * 900: b"4"})
    rev = "a'b\"c;$(id)<i>"
    evil = hub.find("models", "org/evil")[0]
    evil.refs[rev] = evil.sha
    assert hf.get("/hf/api/models/org/evil/tree/" + urllib.parse.quote(rev, safe="")).status == 200
    one = page(hf, "hf/org/evil?rev=" + urllib.parse.quote(rev, safe=""))
    assert EVIL in one.text and "ünï/ж.txt" in one.text and turned not in one.text
    assert not {"script", "i"} & set(one.tags) and "alert(1)" in one.text
    assert "'hf/org/evil@a'\\''b\"c;$(id)<i>'" in one.text or "'org/evil@a'\\''b\"c;$(id)<i>'" in one.text
    assert "--revision 'a'\\''b\"c;$(id)<i>'" in one.text and "revision=\"a'b\\\"c;$(id)<i>\"" in one.text
    assert "x" * 300 + "…" in one.text and "x" * 301 not in one.text
    asked = page(hf, "hf/?q=" + urllib.parse.quote(EVIL))
    assert ("value", EVIL) in asked.attributes and "script" not in asked.tags
    host = hf.get("/-/repos/hf/org/evil", args=("-H", "Host: x\"><script>"))
    assert host.status == 400 or b"<script>" not in host.body


def test_what_is_not_there(hf):
    for path in ("none/", "hf/org/none", "hf/org/demo?rev=none", "hf/../models/", "hf/a/b/c/d", "hf/org/demo@main", "", "hf/%2e%2e/x"):
        assert hf.get("/-/repos/" + path).status == 404, path
    assert hf.get("/-/repos/hf/", method="POST", data=b"").status == 405


def test_who_may_see(mirrord, hub, demo, tmp_path):
    """Closed repos want a token, and show what it may read; what one caller's own right brought is nobody's to see."""
    closed = 'access { anonymous = none }'
    (tmp_path / "secret").write_text("Bearer hf_mirror\n")
    hub.users["hf_mirror"] = "mirror"
    m = mirrord(hub.config(more=f'authorization = "file:{tmp_path}/secret" {closed}') + "\n" + MODELS.replace("}", closed + " }"))
    everything, some = m.token("all", "read:*"), m.token("some", "read:hf/models/org/demo*", "publish:models/me/*")
    for name in ("org/other", "org/demo2"):
        hub.repo(name, files={"config.json": b"{}"})
    for name in ("org/demo", "org/other", "org/demo2"):
        got = m.get(f"/hf/{name}/resolve/main/config.json", headers={"Authorization": f"Bearer {everything}"})
        assert got.status == 200
    assert m.put("/models/me/a/x", b"1", token=some).status == 201
    m.settle()
    for path in ("hf/", "hf/org/demo", "models/", "models/me/a"):
        assert m.get("/-/repos/" + path).status == 401, path
    as_some = {"Authorization": f"Bearer {some}"}
    assert {x for x in page(m, "hf/", headers=as_some).links if "/org/" in x} == {"/-/repos/hf/org/demo", "/-/repos/hf/org/demo2"}
    assert page(m, "models/me/a", headers=as_some).tags
    assert m.get("/-/repos/hf/org/other", headers=as_some).status == 403
    assert {x for x in page(m, "hf/", headers={"Authorization": f"Bearer {everything}"}).links if "/org/" in x} == {
        f"/-/repos/hf/{n}" for n in ("org/demo", "org/demo2", "org/other")}
    basic = base64.b64encode(f"x:{some}".encode()).decode()
    assert page(m, "hf/org/demo", headers={"Authorization": f"Basic {basic}"}).tags  # as browsers send it


def test_private_ones_are_not_told_of(hf, hub):
    hub.users["hf_a"] = "a"
    hub.repo("org/secret", private=True, readers={"hf_a"}, files={"plan.txt": b"!"})
    assert hf.get("/hf/org/secret/resolve/main/plan.txt", headers={"Authorization": "Bearer hf_a"}).status == 200
    hf.settle()
    assert "secret" not in page(hf, "hf/").text and hf.get("/-/repos/hf/org/secret").status == 404
    assert [r for r in hf.ctl_json("hf", "ls") if r["id"] == "org/secret"]


def test_marks_and_partial(hf, hub, demo):
    old = demo.sha
    hf.ctl("hf", "pin", "org/demo")
    new = demo.commit({"config.json": b"[2]"})
    hf.settle()  # what is still on its way into the store is not removed
    hf.ctl("cache", "rm", "hf/api/models/org/demo/revision/")
    assert hf.get("/hf/org/demo/resolve/main/config.json").body == b"[2]"
    hf.settle()
    hf.ctl("hf", "rollback", "org/demo", old)
    one = page(hf, "hf/org/demo")
    assert "held" in one.text and "pinned" in one.text and f"the Hub has {new[:12]}" in one.text


def test_commands_have_copy_buttons(hf, client, tmp_path):
    """In a browser that obeys the page's policy; the status page has them, too."""
    def shown(path):
        run = subprocess.run([client("chromium"), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server",
                              f"--user-data-dir={tmp_path}/chromium", f"--timeout={60_000 * SLOW}", "--dump-dom", hf.url(path)],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120 * SLOW)
        return run.stdout
    for path in ("/", "/-/repos/hf/", "/-/repos/hf/org/demo"):
        dom = shown(path)
        assert dom.count("<pre>") > 0 and dom.count("<button>copy</button></pre>") == dom.count("<pre>"), dom
