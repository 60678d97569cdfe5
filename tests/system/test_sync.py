"""A repo that is mirrored whole: lists of all kinds, runs that change it, runs that must not, snapshots and the way back."""
import hashlib
import json
import os
import threading
import time

import pytest

from harness.mirrord import until
from harness.tree_origin import STYLES, TreeOrigin

CONFIG = 'repo "x" {{ protocol = "generic" origin = "{0}" sync {{ {1} }} }}'
FAST = 'backoff = "100ms" tries = 2'
ODD = "odd/a b+c%25&<>'\".txt"
FILES = {"top": b"1", "a/one.bin": os.urandom(70000), "a/two.bin": os.urandom(100), "a/b/deep.bin": os.urandom(40000),
         "a/b/empty": b"", ODD: b"odd", "odd/\xe9\xff": b"latin", "odd/#hash?query": b"h", "z/last": b"z"}


@pytest.fixture
def o():
    with TreeOrigin(FILES) as origin:
        yield origin


@pytest.fixture
def start(mirrord, o):
    def begin(settings=FAST, **kw):
        m = mirrord(CONFIG.format(o.url, settings), **kw)
        m.o = o
        return m
    return begin


def run(m, *args, rc=0):
    done = m.ctl("--json", "sync", "run", "x", "--wait", *args, check=False)
    assert done.returncode == rc, (done, m.ctl("sync", "logs", "x", check=False).stdout)
    return json.loads(done.stdout)


def url_of(path):
    from urllib.parse import quote
    return "/x/" + quote(path.encode("latin-1"), safe="/")


def served(m, wire="h1", prefix=""):
    """Every file that the recursive listing names, fetched."""
    listed = json.loads(m.get(f"/x/{prefix}?recursive=1", wire, headers={"Accept": "application/json"}).body)
    assert len(listed["entries"]) > 0
    return listed


def check(m, tree, wire="h1", prefix=""):
    """The repo is that tree: each file whole, and no other."""
    assert len(served(m, wire, prefix)["entries"]) == len(tree)
    for (path, data), got in zip(tree.items(), m.get_all([url_of(prefix + path) for path in tree], wire)):
        assert got == (200, data), path


def lines(m):
    return m.ctl("sync", "logs", "x").stdout


@pytest.mark.parametrize("style", STYLES)
def test_every_kind_of_folder_page(start, o, style):
    o.style = style
    if style == "json":
        o.rm("odd/\xe9\xff")  # JSON has no words for it
    m = start()
    assert m.get("/x/top").status == 503
    first = run(m)
    count = len(o.tree())
    assert (first["outcome"], first["listed"], first["new"]) == ("published", count, count)
    check(m, o.tree())
    o.forget()
    again = run(m)
    assert again["outcome"] == "unchanged" and not o.sent and again["seq"] == 1
    if style != "python":  # its pages tell nothing, every file is asked for
        assert not o.unchanged and all(p == "" or p.endswith("/") for p in o.requests)


def test_changes_make_the_next_snapshot(start, o, wire):
    m = start()
    run(m)
    before = o.tree()
    o.put("a/one.bin", b"other", mtime=1700009999)
    o.put("a/new.bin", os.urandom(50000))
    o.rm("z/last")
    o.forget()
    plan = run(m, "--dry-run")
    assert plan["outcome"] == "planned" and (plan["new"], plan["changed"], plan["gone"]) == (1, 1, 1)
    assert not o.sent and m.get("/x/z/last", wire).status == 200
    until(lambda: json.loads(m.get("/-/status.json").body)["sync"][0]["state"] == "planned")
    assert json.loads(m.get("/-/tunasync.json").body)[0]["status"] == "success"  # it was only looked
    done = run(m)
    assert (done["outcome"], done["seq"], set(o.sent)) == ("published", 2, {"a/one.bin", "a/new.bin"})
    check(m, o.tree(), wire)
    assert m.get("/x/z/last", wire).status == 404
    check(m, before, wire, prefix="@v1/")
    diff = {r["path"]: r["what"] for r in m.ctl_json("snapshot", "diff", "x", "v1")}
    assert diff == {"a/one.bin": "changed", "a/new.bin": "added", "z/last": "removed"}
    assert m.get("/x/@v9/top", wire).status == 404
    bare = m.get("/x/@v1", wire)
    assert (bare.status, bare["location"]) == (307, "./@v1/"), "as any folder without its '/'"
    assert m.get("/x/@v1?format=json", wire).body == m.get("/x/@v1/?format=json", wire).body
    assert m.get("/x/@v9", wire).status == 404


def test_rollback_holds_until_it_is_let_go(start, o):
    m = start()
    run(m)
    before = o.tree()
    o.put("top", b"two", mtime=1700009999)
    run(m)
    said = m.ctl("snapshot", "rollback", "x", "v1").stdout
    assert "x is v1 again" in said and "mirrorctl snapshot hold x --off" in said
    now = m.ctl_json("sync", "ls")[0]
    assert now["state"] == "on hold" and now["hold"] and "hold x --off" in m.ctl("sync", "ls").stdout
    check(m, before)
    held = run(m, rc=75)
    assert held["outcome"] == "held" and held["why"] == "this repo is held because it was rolled back"
    check(m, before)
    m.ctl("snapshot", "hold", "x", "--off")
    assert run(m)["outcome"] == "published"
    check(m, o.tree())
    m.ctl("snapshot", "tag", "x", "v1", "good")
    assert m.ctl_json("snapshot", "show", "x", "good")["seq"] == 1
    m.ctl("snapshot", "tag", "x", "v1", "")
    m.ctl("snapshot", "rm", "x", "v1")
    assert m.get("/x/@v1/top").status == 404
    assert m.ctl("snapshot", "rm", "x", f"v{run(m)['seq']}", check=False).returncode == 75


def test_held_when_it_empties_itself(start, o):
    m = start()
    run(m)
    before = o.tree()
    o.rm(*before)
    held = run(m, rc=75)
    assert held["outcome"] == "held" and "empty" in held["why"]
    check(m, before)
    assert m.ctl_json("sync", "ls")[0]["state"] == "held"
    assert run(m, rc=75)["seq"] == held["seq"]  # the same again is not another snapshot
    for path, data in before.items():
        o.put(path, data)
    assert run(m)["outcome"] == "unchanged"
    assert m.ctl_json("sync", "ls")[0]["held_seq"] == 0  # what waited is overtaken
    assert [s["seq"] for s in m.ctl_json("snapshot", "ls", "x")] == [1]
    check(m, before)


def test_held_when_half_vanishes_then_approved(start, o):
    m = start()
    run(m)
    before = o.tree()
    o.rm(*[p for p in before if p.startswith(("a/", "odd/"))])
    held = run(m, rc=75)
    assert held["outcome"] == "held" and "half" in held["why"]
    check(m, before)
    assert {r["what"] for r in m.ctl_json("snapshot", "diff", "x", "v1", f"v{held['seq']}")} == {"removed"}
    assert m.ctl_json("sync", "approve", "x")["seq"] == held["seq"]
    assert m.ctl_json("sync", "ls")[0]["state"] == "published" and "half" not in m.ctl("sync", "ls").stdout
    check(m, o.tree())
    assert run(m)["outcome"] == "unchanged"
    assert m.ctl("sync", "approve", "x", check=False).returncode == 66


def test_max_delete_by_count(start, o):
    m = start(FAST + ' max_delete = "1"')
    run(m)
    o.rm("a/one.bin")
    assert run(m)["outcome"] == "published"
    o.rm("a/two.bin", "top")
    assert run(m, rc=75)["outcome"] == "held"


def test_pause_stops_the_schedule(start, o):
    m = start(FAST + ' schedule = "every 1s"')
    until(lambda: m.ctl_json("sync", "show", "x"))
    m.ctl("sync", "pause", "x")
    runs = len(m.ctl_json("sync", "show", "x"))
    assert runs >= 1 and m.ctl_json("sync", "ls")[0]["state"] == "paused"
    time.sleep(1.5)
    assert len(m.ctl_json("sync", "show", "x")) == runs
    m.ctl("sync", "resume", "x")
    until(lambda: len(m.ctl_json("sync", "show", "x")) > runs)


def test_two_runs_at_once(start, o):
    gate = threading.Event()
    o.midway = lambda path, at: gate.wait(120) and None
    m = start()
    m.ctl("sync", "run", "x")
    second = m.ctl("sync", "run", "x", check=False)
    assert second.returncode == 75 and "under way" in second.stderr
    gate.set()
    until(lambda: not m.ctl_json("sync", "ls")[0]["running"])
    assert m.ctl_json("sync", "ls")[0]["state"] == "published"
    check(m, o.tree())


def test_what_people_say_during_a_run_stays(start, o):
    gate = threading.Event()
    m = start(FAST + ' schedule = "17 3 * * *"')
    run(m)
    m.ctl("sync", "pause", "x")
    o.put("top", b"22", mtime=1700009999)
    o.midway = lambda path, at: gate.wait(120) and None
    m.ctl("sync", "run", "x")  # by hand, paused or not
    m.ctl("sync", "resume", "x")
    gate.set()
    until(lambda: not m.ctl_json("sync", "ls")[0]["running"])
    now = m.ctl_json("sync", "ls")[0]
    assert now["state"] == "published" and now["next_unix_s"] != 0
    assert m.get("/x/top").body == b"22"


def test_probe_lists_nothing_while_it_stays(start, o):
    o.put("trace", b"1")
    m = start(FAST + ' probe = "trace"')
    run(m)
    o.forget()
    assert run(m)["outcome"] == "unchanged" and o.requests == ["trace"]
    assert run(m, "--force")["listed"] == len(FILES) + 1
    o.put("trace", b"2", mtime=1700009999)
    o.put("top", b"22", mtime=1700009999)
    assert run(m)["outcome"] == "published"
    assert m.get("/x/top").body == b"22"


def test_reload_brings_and_takes_a_sync(start, o):
    m = start()
    run(m)
    m.config = CONFIG.format(o.url, FAST + ' schedule = "17 3 * * *"')
    m.reload()
    assert m.ctl_json("sync", "ls")[0]["schedule"] == "17 3 * * *"
    check(m, o.tree())
    m.config = CONFIG.format(o.url, FAST + ' schedule = "77 3 * * *"')
    m.write_config()
    assert m.ctl("config", "reload", check=False).returncode == 78
    assert m.ctl_json("sync", "ls")[0]["schedule"] == "17 3 * * *"


def test_reload_puts_no_run_off(start, o):
    """Who reloads every minute still gets the run of every hour."""
    m = start(FAST + ' schedule = "every 1h"')
    until(lambda: (now := m.ctl_json("sync", "ls")[0])["next_unix_s"] > time.time() and now["state"] == "published")
    planned = m.ctl_json("sync", "ls")[0]["next_unix_s"]
    while time.time() < planned - 3600 + 2:  # another second would be another plan
        time.sleep(0.1)
    m.config = CONFIG.format(o.url, FAST + ' schedule = "every 1h" keep_last = 3')
    m.reload()
    assert m.ctl_json("sync", "ls")[0]["next_unix_s"] == planned
    m.config = CONFIG.format(o.url, FAST + ' schedule = "every 2h"')
    m.reload()
    assert m.ctl_json("sync", "ls")[0]["next_unix_s"] > planned


def test_older_snapshots_go_and_named_ones_stay(start, o):
    m = start(FAST + " keep_last = 2")
    run(m)
    m.ctl("snapshot", "tag", "x", "v1", "first")
    for i in range(4):
        o.put("top", str(i), mtime=1700009999 + 100 * i)
        assert run(m)["outcome"] == "published"
    assert [s["seq"] for s in m.ctl_json("snapshot", "ls", "x")] == [5, 4, 1]
    assert m.get("/x/@v1/top").body == b"1" and m.get("/x/@v2/top").status == 404
    assert m.ctl_json("snapshot", "show", "x", "first")["seq"] == 1
    m.ctl("verify", "--deep")


def test_what_the_world_is_told(start, o):
    m = start(FAST + ' schedule = "17 3 * * *"')
    run(m)

    def told(path="/-/status.json"):
        return json.loads(m.get(path).body)
    until(lambda: told()["sync"][0]["state"] == "published")  # from memory, a second old
    row = told()["sync"][0]
    assert (row["repo"], row["state"], row["entries"]) == ("x", "published", len(FILES))
    tunasync = told("/-/tunasync.json")
    assert [set(t) for t in tunasync] == [{"name", "is_master", "status", "last_update", "last_update_ts", "last_started",
                                           "last_started_ts", "last_ended", "last_ended_ts", "next_schedule",
                                           "next_schedule_ts", "upstream", "size"}]
    assert tunasync[0]["status"] == "success" and tunasync[0]["last_update"].endswith(" +0000")
    assert tunasync[0]["next_schedule_ts"] % 86400 == (3 * 60 + 17) * 60
    assert m.metric("mirrord_sync_runs_total", repo="x", outcome="published") == 1
    assert m.metric("mirrord_sync_snapshot_entries", repo="x") == len(FILES)
    o.rm(*[p for p in o.tree() if p != "top"])
    run(m, rc=75)
    until(lambda: told()["sync"][0]["state"] == "held")
    assert m.metric("mirrord_sync_held", repo="x") == 1 and told("/-/tunasync.json")[0]["status"] == "failed"
    page = m.get("/").body.decode()
    assert '<b class="bad">held</b>' in page and "mirrorctl sync approve x" in page


def test_a_rate_by_the_hour_holds_a_fetch_back(start, o):
    """No timing: a run at 64k/s is still fetching when an unlimited one would long be done, and ends well when it is let go."""
    o.put("large", os.urandom(2 << 20))
    m = start(FAST + ' hours = {"00:00-24:00 64k/s"}')
    m.ctl("sync", "run", "x")
    until(lambda: m.ctl_json("sync", "ls")[0]["last"].get("bytes_done", 0) >= 100000)
    assert m.ctl_json("sync", "ls")[0]["state"] == "fetch"
    m.ctl("sync", "stop", "x")
    m.config = CONFIG.format(o.url, FAST + ' hours = {"00:00-24:00 0"}')
    m.reload()
    until(lambda: not m.ctl_json("sync", "ls")[0]["running"])
    assert run(m)["outcome"] == "published"
    check(m, o.tree())
    m.config = CONFIG.format(o.url, FAST + ' hours = {"25:00-26:00 1k/s"}')
    m.write_config()
    assert m.ctl("config", "reload", check=False).returncode == 78


def test_a_list_of_sums(start, o):
    def sums(*without):
        return "".join(f"{hashlib.sha256(d).hexdigest()} {'*' if i % 2 else ' '}{'./' if i % 3 else ''}{p}\n"
                       for i, (p, d) in enumerate(o.tree().items()) if p not in ("SHA256SUMS", *without)).encode("latin-1")
    o.put("SHA256SUMS", sums("z/last"))
    m = start(FAST + ' list = sums probe = "SHA256SUMS"')
    run(m)
    assert m.get("/x/z/last").status == 404  # it is not named
    want = o.tree()
    del want["z/last"]
    check(m, want)
    o.put("a/copy.bin", FILES["a/one.bin"])
    o.put("a/two.bin", b"new")
    o.put("SHA256SUMS", sums("z/last"), mtime=1700009999)
    o.forget()
    assert run(m)["reused"] == 1 and set(o.sent) == {"SHA256SUMS", "a/two.bin"}  # what is here under another name is not fetched
    o.put("top", b"not what is named")
    o.put("SHA256SUMS", sums("z/last").replace(hashlib.sha256(b"not what is named").hexdigest().encode(), b"0" * 64),
          mtime=1700019999)
    assert "SHA-256" in run(m, rc=69)["why"] and m.get("/x/top").body == b"1"
    o.put("SHA256SUMS", b"<html>no such file</html>", mtime=1700029999)
    assert run(m, rc=69)["outcome"] == "failed" and m.get("/x/top").body == b"1"
