"""mirrorctl hf: what is here of a Hub's repositories, and of our own; on the fixture Hub."""
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.parse
import urllib.request

import pytest

from harness.hub import Big, Hub, read, sha256_of
from harness.mirrord import BUILD, SLOW, until

FILES = {"README.md": b"# demo\n", "config.json": b"{}", "model.safetensors": Big(3 << 20), "sub/weights.bin": Big(70000, 2)}
TOTAL = sum(d.size if isinstance(d, Big) else len(d) for d in FILES.values())
MODELS = 'repo "models" { protocol = "hosted" }\n'


@pytest.fixture
def demo(hub):
    return hub.repo("org/demo", files=FILES)


@pytest.fixture
def hf(mirrord, hub, demo):
    return mirrord(hub.config() + "\n" + MODELS)


def fetch(m, path, repo="org/demo", rev="main", prefix=""):
    got = m.get(f"/hf/{prefix}{repo}/resolve/{rev}/{path}")
    assert got.status == 200, got.body
    return got


def ls(m, *args):
    return {r["id"]: r for r in m.ctl_json("hf", "ls", *args)}


def test_ls_and_show(hf, hub, demo):
    assert hf.ctl_json("hf", "ls") == []
    fetch(hf, "config.json")
    fetch(hf, "model.safetensors")
    hf.settle()
    calls = len(hub.calls)
    row = ls(hf)["org/demo"]
    assert (row["repo"], row["kind"], row["type"], row["commit"]) == ("hf", "pull-through", "models", demo.sha)
    assert (row["files"], row["bytes"], row["files_here"], row["bytes_here"]) == (4, TOTAL, 2, (3 << 20) + 2)
    assert row["last_asked_unix_s"] > 0 and not row["pinned"] and not row["held"]
    main, = hf.ctl_json("hf", "show", "org/demo")
    assert (main["revision"], main["commit"], main["files_here"], main["files"]) == ("main", demo.sha, 2, 4)
    for args in (("hf", "org/demo", "main"), ("org/demo@main",), ("hf/org/demo@" + demo.sha,), ("hf", "org/demo", demo.sha[:9]),
                 ("hf", "ORG/Demo", "main")):
        files = {f["path"]: f for f in hf.ctl_json("hf", "show", *args)}
        assert {p: f["state"] for p, f in files.items()} == {
            "README.md": "absent", "config.json": "whole", "model.safetensors": "whole", "sub/weights.bin": "absent"}, args
        assert files["model.safetensors"]["sha256"] == sha256_of(FILES["model.safetensors"])
        assert files["config.json"]["git_oid"] == demo.etag("config.json") and files["config.json"]["sha256"] is None
    assert len(hub.calls) == calls, "looking asks the Hub nothing"


def test_revisions(hf, hub, demo):
    old = demo.sha
    new = demo.commit({"config.json": b"[]"}, ref="v2")
    fetch(hf, "config.json")
    fetch(hf, "config.json", rev="v2")
    fetch(hf, "config.json", rev="v2")
    hf.settle()
    rows = [(r["revision"], r["commit"], r["files_here"]) for r in hf.ctl_json("hf", "show", "hf", "org/demo")]
    assert rows == [("main", old, 1), ("v2", new, 1)]
    demo.refs["main"] = new  # the mirror has not asked yet
    assert hf.ctl_json("hf", "show", "hf", "org/demo")[0]["commit"] == old


def test_another_hub_by_that_name(hf, hub, demo, tmp_path):
    """What is kept of the former origin is served to nobody, so it is not told of as here."""
    for path in FILES:
        fetch(hf, path)
    hf.settle()
    with Hub() as other:
        hf.config = other.config() + "\n" + MODELS
        hf.reload()
        assert ls(hf) == {}
        for args in (("hf", "show", "org/demo"), ("hf", "export", "org/demo", "--to", str(tmp_path / "a"))):
            assert hf.ctl(*args, check=False).returncode == 66, args
    hf.config = hub.config() + "\n" + MODELS
    hf.reload()
    assert ls(hf)["org/demo"]["files_here"] == len(FILES)


def test_one_file_is_no_files(hf, hub):
    hub.repo("org/one", files={"a": b"a"})
    said = hf.ctl("hf", "prefetch", "org/one", "--wait", "--pin")
    assert "1 file, " in said.stdout and "1 files" not in said.stdout + said.stderr
    assert "of its 1 file " in hf.ctl("hf", "pin", "org/one").stdout


def test_partly_here(hf, hub, demo):
    """A file under way, and one whose fetching broke off."""
    big = Big(64 << 20, 3)
    hub.repo("org/big", files={"big.bin": big})
    hub.order(".", ("slow", 1 << 20), times=100, cdn=True)
    with urllib.request.urlopen(hf.url("/hf/org/big/resolve/main/big.bin"), timeout=120 * SLOW) as client:
        client.read(256 << 10)
        file, = hf.ctl_json("hf", "show", "hf", "org/big", "main")
        assert file["state"] == "partial" and 0 < file["have"] < big.size
    until(lambda: re.search(r"big.bin\t67108864\tpartial \d+%\t", hf.ctl("hf", "show", "hf", "org/big", "main").stdout))


def test_kinds_names_and_the_lost(hf, hub, demo):
    hub.repo("org/set", kind="datasets", files={"a.parquet": Big(5000)})
    hub.repo("openai-community/gpt2", files={"config.json": b"{}"})
    hub.rename("gpt2", "openai-community/gpt2")
    fetch(hf, "a.parquet", repo="org/set", prefix="datasets/")
    fetch(hf, "config.json", repo="gpt2")
    token = hf.token("ci", "publish:models/*")
    assert hf.put("/models/me/m/x.bin", b"one", token=token).status == 201
    assert hf.put("/models/me/m/x.bin", b"two", token=token).status == 201
    hf.settle()
    assert set(ls(hf)) == {"org/set", "openai-community/gpt2", "me/m"}
    assert set(ls(hf, "hf")) == {"org/set", "openai-community/gpt2"}
    assert set(ls(hf, "hf", "datasets/")) == {"org/set"} and set(ls(hf, "hf", "openai")) == {"openai-community/gpt2"}
    for spelled in ("gpt2", "openai-community/gpt2"):
        assert [f["state"] for f in hf.ctl_json("hf", "show", "hf", spelled, "main")] == ["whole"]
    assert [f["path"] for f in hf.ctl_json("hf", "show", "datasets/org/set@main")] == ["a.parquet"]
    mine = ls(hf, "models")["me/m"]
    assert (mine["kind"], mine["files"], mine["bytes_here"], mine["revisions"]) == ("hosted", 1, 3, 2)
    rows = {r["revision"]: r["commit"] for r in hf.ctl_json("hf", "show", "models/me/m")}
    assert set(rows) == {"main", "v1", "v2"} and rows["main"] == rows["v2"] != rows["v1"]
    for args, code, says in ((("org/none",), 66, "no client has requested"), (("models/me/none",), 66, "has no me/none"),
                             (("hf", "org/set@v9"), 66, "does not know"), (("datasets/org/set@v9",), 66, "no revision \"v9\""),
                             (("a/b/c/d",), 65, "is not a repository"), (("none", "org/set"), 66, "is not a repo")):
        done = hf.ctl("hf", "show", *args, check=False)
        assert done.returncode == code and says in done.stderr, (args, done)
    assert hf.ctl("hf", "ls", "nope", check=False).returncode == 66


def test_synced(mirrord, hub, demo):
    hub.repo("org/set", kind="datasets", files={"a.parquet": Big(5000)})
    m = mirrord(hub.config(more='sync { repos = {"org/demo", "org/demo@v1/x", "datasets/org/set"} }'))
    old = demo.sha
    demo.refs["v1/x"] = demo.commit({**FILES, "config.json": b"[1]"}, ref="v1/x")
    assert json.loads(m.ctl("--json", "sync", "run", "hf", "--wait").stdout)["outcome"] == "published"
    rows = ls(m)
    assert set(rows) == {"org/demo", "org/set"} and rows["org/demo"]["kind"] == "synced"
    assert (rows["org/demo"]["revisions"], rows["org/demo"]["files_here"], rows["org/demo"]["commit"]) == (2, 4, old)
    revisions = {r["revision"]: r["commit"] for r in m.ctl_json("hf", "show", "org/demo")}
    assert revisions == {"main": old, "v1/x": demo.refs["v1/x"]}
    for rev in ("v1/x", demo.refs["v1/x"]):
        files = {f["path"]: f for f in m.ctl_json("hf", "show", "hf", "org/demo", rev)}
        assert set(files) == set(FILES) and files["config.json"]["size"] == 3
    assert m.ctl("hf", "show", "org/none", check=False).returncode == 66


def test_whoever_was_let_in_is_told_to_administrators_alone(hf, hub):
    """A private repository that one caller's token opened."""
    hub.users["hf_a"] = "a"
    hub.repo("org/secret", private=True, readers={"hf_a"}, files={"config.json": b"{}"})
    got = hf.get("/hf/org/secret/resolve/main/config.json", headers={"Authorization": "Bearer hf_a"})
    assert got.status == 200
    hf.settle()
    assert ls(hf)["org/secret"]["files_here"] == 1
    assert [f["state"] for f in hf.ctl_json("hf", "show", "org/secret@main")] == ["whole"]


# --- ahead of demand ---

def states(m, *args):
    return {f["path"]: f["state"] for f in m.ctl_json("hf", "show", *args)}


def job(m, i=-1):
    return m.ctl_json("hf", "prefetch")[i]


def comes_to(m, state, i=-1):
    until(lambda: job(m, i)["state"] == state, 600)
    return job(m, i)


@pytest.fixture
def held():
    """hub.order(what, held.wait, ...): those answers come when it is set, at the test's end at the latest."""
    event = threading.Event()
    yield event
    event.set()


def test_prefetch(hf, hub, demo):
    fetch(hf, "model.safetensors")
    hf.settle()
    done = json.loads(hf.ctl("--json", "hf", "prefetch", "org/demo", "--wait").stdout)
    assert (done["state"], done["commit"], done["files"], done["files_done"]) == ("done", demo.sha, 4, 4)
    assert (done["bytes"], done["bytes_done"], done["here_bytes"]) == (TOTAL, TOTAL, 3 << 20)
    assert set(states(hf, "org/demo@main").values()) == {"whole"}
    assert hub.cdn_bytes[sha256_of(FILES["model.safetensors"])] == 3 << 20, "what was here did not come again"
    hub.down()
    for path, data in FILES.items():
        assert fetch(hf, path).body == read(data)
    hub.up()
    said = hf.ctl("hf", "prefetch", "hf/org/demo", "--wait")
    assert "4 files" in said.stdout and "0 B fetched" in said.stdout
    assert [(j["state"], j["files_done"]) for j in hf.ctl_json("hf", "prefetch")] == [("done", 4)] * 2
    assert "hf/org/demo@main\tdone\t4/4\t" in hf.ctl("hf", "prefetch").stdout


def test_prefetch_of_odd_files(mirrord, hub):
    """Empty ones, names that URLs and shells know, a file that is there twice, listings in pages."""
    files = {"empty": b"", "sub/100% ünï+code#?.txt": b"x", "with blank": b"y", "twin.bin": Big(5000), "sub/twin.bin": Big(5000)}
    files |= {f"many/{i}.txt": b"%d" % i for i in range(40)}
    hub.page = 7
    hub.repo("org/odd", files=files)
    m = mirrord(hub.config(more="rule 'secret' { class = deny }"))
    done = json.loads(m.ctl("--json", "hf", "prefetch", "org/odd", "--pin", "--wait").stdout)
    assert done["files_done"] == len(files) and set(states(m, "org/odd@main").values()) == {"whole"}
    assert sum(hub.cdn_bytes.values()) == 5000
    hub.down()
    for path, data in files.items():
        assert m.get("/hf/org/odd/resolve/main/" + urllib.parse.quote(path)).body == read(data)
    hub.up()
    hub.repo("org/half", files={"a.txt": b"a", "secret.txt": b"s", "b.txt": b"b"})
    denied = m.ctl("hf", "prefetch", "org/half", "--wait", check=False)
    assert denied.returncode == 77 and "rule of this mirror" in denied.stderr


def test_prefetch_chooses(hf, hub, demo):
    r = hub.repo("org/set", kind="datasets", files={"data/a.parquet": Big(5000), "data/b.parquet": Big(6000, 2), "x/y.txt": b"y"})
    hf.ctl("hf", "prefetch", "datasets/org/set", "--include", "data/", "--exclude", "*/b.*", "--wait")
    assert states(hf, "datasets/org/set@main") == {"data/a.parquet": "whole", "data/b.parquet": "absent", "x/y.txt": "absent"}
    hf.ctl("hf", "prefetch", f"datasets/org/set@{r.sha}", "--wait")
    assert set(states(hf, "datasets/org/set@main").values()) == {"whole"}
    none = hf.ctl("hf", "prefetch", "org/demo", "--include", "*.gguf", "--wait", check=False)
    assert none.returncode == 66 and "none of the 4 files matches" in none.stderr


def test_prefetch_says_what_is_wrong(mirrord, hub, demo, tmp_path):
    hub.users["hf_in"] = "in"
    hub.repo("org/gated", gated=True, readers={"hf_in"}, files={"config.json": b"{}", "w.bin": Big(9000)})
    hub.repo("org/huge", files={"w.bin": Big(40 << 30, digest="5" * 64)})
    hf = mirrord(hub.config() + MODELS + 'storage { quota = "1g" reserve = "16m" }')
    for args, code, says in ((("org/none",), 77, "private, or does not exist"), (("org/demo@v7",), 66, "Invalid rev id"),
                             (("org/gated",), 77, "--token-file"), (("models/me/m",), 64, "is hosted"),
                             (("org/huge",), 73, "raise storage"), (("a b",), 65, "is not a repository")):
        for wait in ((), ("--wait",)):
            done = hf.ctl("hf", "prefetch", *args, *wait, check=False)
            if not wait and done.returncode == 0:  # a Hub that is slow to say it: then the list of jobs does
                assert ": asking" in done.stdout, (args, done)
                continue
            assert done.returncode == code and says in done.stderr, (args, done)
    token = tmp_path / "token"
    token.write_text("hf_in\n")
    hf.ctl("hf", "prefetch", "org/gated", "--token-file", token, "--wait")
    assert set(states(hf, "org/gated@main").values()) == {"whole"}
    hf.stop()  # while it runs its files come and go
    rows = b"".join(p.read_bytes() for p in (hf.state / "meta").iterdir() if p.is_file())
    hf.start()
    assert b"hf_in" not in rows and b"hf_in" not in hf.log().encode(), "a token was written down"
    assert hf.get("/hf/org/gated/resolve/main/config.json").status == 401, "it opens nothing to others"
    token.write_text("hf_out")
    hub.users["hf_out"] = "out"
    out = hf.ctl("hf", "prefetch", "org/gated", "--token-file", token, check=False)
    assert out.returncode == 77 and "has no access" in out.stderr
    token.write_text("")
    assert hf.ctl("hf", "prefetch", "org/gated", "--token-file", token, check=False).returncode == 65


def test_two_prefetches_and_a_client(hf, hub, demo, held):
    """One id asked for twice is one job; clients and another revision with the same files join its fills."""
    big = Big(32 << 20, 7)
    r = hub.repo("org/big", files={"big.bin": big, "a.txt": b"a"})
    hub.order(".", held.wait, times=100, cdn=True)
    first = json.loads(hf.ctl("--json", "hf", "prefetch", "org/big").stdout)
    second = json.loads(hf.ctl("--json", "hf", "prefetch", "org/big").stdout)
    assert first["prefetch"] == second["prefetch"] and second["joined"] and not first["joined"]
    other = json.loads(hf.ctl("--json", "hf", "prefetch", f"org/big@{r.sha}").stdout)
    assert other["prefetch"] != first["prefetch"]
    held.set()
    assert fetch(hf, "big.bin", repo="org/big").body == read(big)
    assert comes_to(hf, "done", 0)["files_done"] == comes_to(hf, "done", 1)["files_done"] == 2
    assert hub.cdn_bytes == {sha256_of(big): big.size}


def test_prefetch_while_the_hub_dies(hf, hub, demo, held):
    """It waits, says why, and goes on when the Hub is back."""
    files = {f"{i}.bin": Big(2 << 20, i + 10) for i in range(16)}
    hub.repo("org/big", files=files)
    hub.order(".", 0, times=2, cdn=True)  # those come
    hub.order(".", held.wait, times=100, cdn=True)
    begun = hf.ctl("hf", "prefetch", "org/big")
    assert "--stop" in begun.stdout
    until(lambda: job(hf)["bytes_done"])
    hub.down()
    hub.order(".", 503, times=1 << 30)  # on connections that are open still
    held.set()
    seen = []

    def waits():
        seen.append(job(hf))
        return seen[-1]["why"] and seen[-1]["state"] in ("waiting", "asking") and seen[-1]["next_unix_s"] > 0
    until(waits)
    assert seen[-1]["files"] == 16
    hub.cdn_script.clear()
    hub.script.clear()
    hub.up()
    assert hf.ctl("hf", "prefetch", "org/big", "--wait").returncode == 0  # asked again, it tries at once
    assert comes_to(hf, "done")["files_done"] == 16
    assert set(states(hf, "org/big@main").values()) == {"whole"}


def test_show_names_the_repo_that_has_it(hf, hub, demo):
    """`hf ls` lists what is in all repos; an id without a repo is looked for in the Hub's."""
    assert hf.put("/models/me/gpt/x", b"x", token=hf.token("ci", "publish:models/*")).status == 201
    for args in (("me/gpt",), ("hf/me/gpt",), ("me/gpt@main",)):
        none = hf.ctl("hf", "show", *args, check=False)
        assert none.returncode == 66 and "repo models has it; see `mirrorctl hf show models/me/gpt`" in none.stderr, none
    assert "see `mirrorctl hf ls`" in hf.ctl("hf", "show", "me/other", check=False).stderr
    fetch(hf, "config.json")
    assert "models" not in hf.ctl("hf", "show", "org/demo@v9", check=False).stderr, "it is there, the revision is not"


def test_a_prefetch_that_waits_says_so_once(hf, hub, demo, tmp_path):
    """However often it tries: the name once, the reason, the next try, the end of its patience and how to end it."""
    hub.down()
    with open(tmp_path / "said", "w") as said:
        watcher = subprocess.Popen([BUILD / "mirrorctl", "--socket", hf.socket, "hf", "prefetch", "org/demo", "--wait"], stderr=said,
                                   stdout=subprocess.DEVNULL)
    until(lambda: hf.ctl_json("hf", "prefetch") and job(hf)["tries"] >= 3)
    hf.ctl("hf", "prefetch", "org/demo", "--stop")
    assert watcher.wait(120 * SLOW) != 0
    lines = (tmp_path / "said").read_text().splitlines()
    waiting = [line for line in lines if "waiting: " in line]
    assert waiting and len(waiting) == len({line.split(";")[0] for line in waiting}), "a line for each reason: %r" % lines
    assert all(re.fullmatch(r"org/demo: waiting: (?!org/demo).*; next attempt in \S+( \S+)?, gives up in \S+.*", line) for line in waiting), lines
    assert [line for line in lines if "Ctrl-C" in line] == ["Ctrl-C leaves the prefetch running; `mirrorctl hf prefetch org/demo --stop` stops it"]
    assert len(lines) <= 3 + len(waiting), lines


def test_stop_leave_and_wait(hf, hub, demo):
    big = Big(64 << 20, 8)
    hub.repo("org/big", files={"big.bin": big})
    hub.hold_at = 32 << 20
    watcher = subprocess.Popen([BUILD / "mirrorctl", "--socket", hf.socket, "hf", "prefetch", "org/big", "--wait"],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's `&` had it ignored
    until(lambda: hf.ctl_json("hf", "prefetch") and job(hf)["bytes_done"])
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait(120 * SLOW) != 0
    watcher.stdout.close()
    assert job(hf)["state"] == "fetching", "it goes on without its watcher"
    assert hf.ctl_json("hf", "prefetch", "org/big", "--stop")["stopped"] == 1
    assert comes_to(hf, "stopped")["why"]
    until(lambda: states(hf, "org/big@main") == {"big.bin": "partial"})
    assert hf.ctl("hf", "prefetch", "org/big", "--stop", check=False).returncode == 66
    assert hf.ctl("hf", "prefetch", "--stop", check=False).returncode == 64
    hub.go.set()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_prefetch_over_a_restart(hf, hub, demo, how):
    """SIGKILL in the middle: the next life goes on by itself, and what came does not come again."""
    small = {f"{i}.bin": Big(1 << 20, i + 30) for i in range(4)}
    big = Big(300 << 20, 9)
    hub.repo("org/big", files={**small, "z.bin": big})
    hub.hold_at = 200 << 20
    hf.ctl("hf", "prefetch", "org/big")
    until(lambda: job(hf)["bytes_done"])
    until(lambda: hf.ctl_json("hf", "show", "org/big@main")[-1].get("have", 0) >= 190 << 20)
    if how == "kill":
        os.sync()
        time.sleep(10)  # what is here is noted every five seconds
    getattr(hf, how)()
    hub.hold_at = None
    hub.go.set()
    hf.start()
    done = comes_to(hf, "done")
    assert done["files_done"] == 5 and set(states(hf, "org/big@main").values()) == {"whole"}
    assert hub.cdn_bytes[sha256_of(big)] < 450 << 20, "it began anew"
    assert hf.ctl("verify").returncode == 0


# --- pins ---

def test_pins_stay(mirrord, hub, demo):
    """Under pressure: a pinned revision's files stay, also those that came after the pin, and bytes that it shares with others."""
    m = mirrord(hub.config() + 'storage { quota = "64m" reserve = "1m" }')
    hub.repo("org/twin", files={"same.safetensors": FILES["model.safetensors"]})
    m.ctl("hf", "pin", "org/demo")
    assert m.ctl_json("cache", "pins") == [{"scope": f"hf/models/org/demo@{demo.sha}", "owner": "mirrorctl hf pin main"}]
    fetch(m, "same.safetensors", repo="org/twin")
    m.ctl("hf", "prefetch", "org/demo", "--wait")
    assert ls(m)["org/demo"]["pinned"] and not ls(m)["org/twin"]["pinned"]
    for i in range(12):
        hub.repo(f"org/n{i}", files={"w.bin": Big(8 << 20, 50 + i)})
        fetch(m, "w.bin", repo=f"org/n{i}")
    m.settle()
    until(lambda: sum(r["files_here"] or 0 for r in ls(m).values()) < 12)
    assert ls(m)["org/demo"]["files_here"] == 4
    hub.down()
    for path, data in FILES.items():
        assert fetch(m, path).body == read(data)
    hub.up()
    assert m.ctl("verify").returncode == 0 and m.ctl_json("cache", "gc")["blobs"] == 0
    m.ctl("hf", "unpin", "org/demo@main")
    assert m.ctl_json("cache", "pins") == []
    assert not any(r["pinned"] for r in ls(m).values()), "or gone by now: its files may go"
    assert m.ctl("hf", "unpin", "org/demo", check=False).returncode == 66


def test_pins_are_of_a_commit(hf, hub, demo):
    old = demo.sha
    hf.ctl("hf", "pin", "org/demo")
    new = demo.commit({"config.json": b"[3]"}, ref="v2")
    hf.ctl("hf", "prefetch", "org/demo@v2", "--pin", "--include", "*.json", "--wait")
    pinned = {r["revision"]: r["pinned"] for r in hf.ctl_json("hf", "show", "org/demo")}
    assert pinned == {"main": True, "v2": True}
    hf.ctl("hf", "unpin", f"org/demo@{old[:8]}")
    assert [p["scope"] for p in hf.ctl_json("cache", "pins")] == [f"hf/models/org/demo@{new}"]
    hf.ctl("cache", "unpin", f"hf/models/org/demo@{new}")
    assert hf.ctl_json("cache", "pins") == []
    hf.ctl("cache", "pin", "hf/models/org/demo/")
    assert all(r["pinned"] for r in hf.ctl_json("hf", "show", "org/demo"))
    assert hf.ctl("hf", "pin", "models/me/m", check=False).returncode == 64


# --- rollback ---

def info(m, path="/hf/api/models/org/demo/revision/main"):
    got = m.get(path)
    assert got.status == 200, got.body
    return json.loads(got.body)


def test_rollback_is_seen_at_once_and_lasts(hf, hub, demo):
    old = demo.sha
    assert fetch(hf, "config.json").body == b"{}"
    new = demo.commit({"config.json": b"[2]", "more.txt": b"more"})
    hf.settle()  # what is still on its way into the store is not removed
    hf.ctl("cache", "rm", "hf/api/models/org/demo/revision/")
    assert fetch(hf, "config.json").body == b"[2]"
    hf.settle()
    done = json.loads(hf.ctl("--json", "hf", "rollback", "org/demo", old[:10]).stdout)
    assert (done["branch"], done["commit"], done["files"], done["held"]) == ("main", old, 4, True)
    for _ in range(2):
        for wire in ("h1", "h2"):
            for head in (True, False):
                got = hf.get("/hf/org/demo/resolve/main/config.json", wire, head=head)
                assert (got.status, got["x-repo-commit"], got["content-length"]) == (200, old, "2")
                assert "no-cache" in got["cache-control"]
            assert hf.get("/hf/org/demo/resolve/main/more.txt", wire).status == 404
        assert info(hf)["sha"] == info(hf, "/hf/api/models/org/demo")["sha"] == old
        assert info(hf, "/hf/api/models/org/demo/revision/main?blobs=true")["sha"] == old
        assert {e["path"] for e in info(hf, "/hf/api/models/org/demo/tree/main?recursive=true") if e["type"] == "file"} == set(FILES)
        assert info(hf, "/hf/api/models/org/demo/refs")["branches"][0]["targetCommit"] == old
        assert fetch(hf, "more.txt", rev=new).body == b"more", "the commit itself is there as ever"
        main, = [r for r in hf.ctl_json("hf", "show", "org/demo") if r["revision"] == "main"]
        assert (main["commit"], main["held"], main["upstream_commit"]) == (old, True, new)
        assert ls(hf)["org/demo"]["held"]
        hf.kill()  # it is a row: a restart, and a reload, change nothing
        hf.start()
        hf.reload()
    hub.down()
    assert hf.get("/hf/org/demo/resolve/main/config.json")["x-repo-commit"] == old, "nobody is asked what it is"
    hub.up()
    said = hf.ctl("hf", "rollback", "org/demo", "--release").stdout
    assert said == "org/demo: main is no longer held\n" and fetch(hf, "config.json").body == b"[2]" and info(hf)["sha"] == new
    assert hf.ctl("hf", "rollback", "org/demo", "--release", check=False).returncode == 66


def test_rollback_of_what_is_not_here_yet(hf, hub, demo):
    """A commit that nobody asked for is looked up; other branches, datasets, other names, closed doors."""
    old = demo.sha
    demo.commit({"config.json": b"[3]"})
    done = json.loads(hf.ctl("--json", "hf", "rollback", "hf/org/demo@main", old).stdout)
    assert done["commit"] == old and not done["files_here"]
    assert fetch(hf, "config.json").body == b"{}"
    r = hub.repo("org/set", kind="datasets", files={"a.txt": b"1"})
    first = r.sha
    r.commit({"a.txt": b"2"}, ref="dev")
    hf.ctl("hf", "rollback", "datasets/org/set@dev", "main")
    assert fetch(hf, "a.txt", repo="org/set", rev="dev", prefix="datasets/")["x-repo-commit"] == first
    g = hub.repo("openai-community/gpt2", files={"config.json": b"{}"})
    hub.rename("gpt2", "openai-community/gpt2")
    was = g.sha
    g.commit({"config.json": b"[9]"})
    assert fetch(hf, "config.json", repo="gpt2").body == b"[9]"
    hf.ctl("hf", "rollback", "gpt2", was)
    for name in ("gpt2", "openai-community/gpt2", "OpenAI-Community/GPT2"):
        assert fetch(hf, "config.json", repo=name).body == b"{}", name
        assert info(hf, f"/hf/api/models/{name}/revision/main")["sha"] == was, name
    for args, code, says in ((("org/demo", "0" * 40), 66, "Invalid rev"), (("org/demo",), 64, "takes the commit"),
                             (("org/demo", old, "--release"), 64, "takes the commit"), (("org/none", old), 77, "private"),
                             ((f"org/demo@{old}", old), 64, "never changes")):
        refused = hf.ctl("hf", "rollback", *args, check=False)
        assert refused.returncode == code and says in refused.stderr, (args, refused)


def test_rollback_of_trees(mirrord, hub, demo):
    """Synced ones go back with their snapshot, our own by their head."""
    m = mirrord(hub.config(more='sync { repos = {"org/demo"} }') + "\n" + MODELS)
    old = demo.sha
    m.ctl("sync", "run", "hf", "--wait")
    new = demo.commit({"config.json": b"[2]"})
    m.ctl("sync", "run", "hf", "--wait")
    assert info(m)["sha"] == new
    said = m.ctl("hf", "rollback", "hf/org/demo", old).stdout
    assert "v1 again" in said and info(m)["sha"] == old and ls(m, "hf")["org/demo"]["commit"] == old
    assert m.ctl_json("hf", "show", "hf/org/demo")[0]["held"]
    m.ctl("hf", "rollback", "hf/org/demo", "--release")
    assert not m.ctl_json("hf", "show", "hf/org/demo")[0]["held"]
    token = m.token("ci", "publish:models/*")
    for text in (b"one", b"two"):
        assert m.put("/models/me/m/x", text, token=token).status == 201
    first = {r["revision"]: r["commit"] for r in m.ctl_json("hf", "show", "models/me/m")}["v1"]
    said = m.ctl("hf", "rollback", "models/me/m", first).stdout
    assert "--release" not in said and "next upload" in said, "nothing keeps a publisher from the next version"
    assert m.get("/models/me/m/resolve/main/x").body == b"one" and m.get("/models/me/m/x").body == b"one"
    assert m.ctl_json("hf", "show", "models/me/m")[0]["held"]
    m.ctl("hf", "rollback", "models/me/m", "v2")
    assert m.get("/models/me/m/x").body == b"two"
    assert m.ctl("hf", "rollback", "models/me/m", "v9", check=False).returncode == 66


def test_hosted_branches_and_datasets(hf):
    token = hf.token("ci", "publish:models/*")
    assert hf.put("/models/datasets/me/d/x", b"one", token=token).status == 201
    post = dict(token=token, method="POST", headers={"Content-Type": "application/json"})
    assert hf.put("/models/api/datasets/me/d/branch/dev", b"{}", **post).status in (200, 201)
    assert hf.put("/models/datasets/me/d@dev/x", b"two", token=token).status == 201
    row = ls(hf, "models")["me/d"]
    assert (row["type"], row["files"], row["revisions"]) == ("datasets", 1, 2)
    rows = {r["revision"]: r for r in hf.ctl_json("hf", "show", "models/datasets/me/d")}
    assert set(rows) == {"main", "dev", "v1", "v2"} and rows["dev"]["commit"] == rows["v2"]["commit"]
    assert [f["path"] for f in hf.ctl_json("hf", "show", "models/datasets/me/d@dev")] == ["x"]
    hf.ctl("hf", "rollback", "models/datasets/me/d@dev", "v1")
    assert hf.get("/models/datasets/me/d@dev/x").body == b"one"
