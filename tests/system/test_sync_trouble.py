"""Disturbances of a sync: whatever the upstream or this machine does, the published snapshot is served whole throughout, and
what was stored is not fetched again."""
import os
import re
import subprocess
import threading
import time

import pytest

from harness.mirrord import BUILD, until
from harness.tree_origin import TreeOrigin
from system.test_sync import CONFIG, FAST, check, lines, run, served

OLD = {f"pool/{i:02}/file{k}": os.urandom(300 * k + 10) for i in range(6) for k in range(4)}
BIG = {f"big/{i}": os.urandom(1 << 20) for i in range(6)}


@pytest.fixture
def o():
    with TreeOrigin(OLD) as origin:
        yield origin


@pytest.fixture
def m(mirrord, o):
    """One snapshot is published; the next one would bring some megabytes."""
    m = mirrord(CONFIG.format(o.url, FAST))
    run(m)
    m.old = o.tree()
    for path, data in BIG.items():
        o.put(path, data)
    o.put("pool/00/file0", b"changed", mtime=1700009999)
    o.forget()
    return m


def comes_to(m, stage):
    def there():
        now = m.ctl_json("sync", "ls")[0]
        assert now["state"] == stage or now["running"] or stage not in ("fetch", "list"), now
        return now["state"] == stage
    until(there)


def fetched(m, least):
    """So many files of the run under way are stored."""
    until(lambda: m.ctl_json("sync", "ls")[0]["last"].get("files_done", 0) >= least)


def finished(m):
    until(lambda: not m.ctl_json("sync", "ls")[0]["running"])


def clean(m):
    m.ctl("verify", "--deep")


def test_origin_dies_in_the_list(m, o):
    o.disturb = lambda path: "cut" if path == "pool/03/" else None
    assert run(m, rc=69)["outcome"] == "failed"
    check(m, m.old)
    o.disturb = None
    assert run(m)["outcome"] == "published"
    check(m, o.tree())


def test_what_is_waited_for_is_told(mirrord, o):
    o.disturb = lambda path: 503
    m = mirrord(CONFIG.format(o.url, 'backoff = "1h" tries = 2'))
    m.ctl("sync", "run", "x")
    comes_to(m, "retrying")
    assert "503" in m.ctl_json("sync", "ls")[0]["last"]["why"] and "503" in m.ctl("sync", "ls").stdout
    m.ctl("sync", "stop", "x")
    finished(m)


def test_each_attempt_that_fails_is_shown_at_once(mirrord, o, tmp_path):
    o.disturb = lambda path: 503
    m = mirrord(CONFIG.format(o.url, 'backoff = "1h" tries = 6'))
    with open(tmp_path / "said", "w") as said:
        waiting = subprocess.Popen([BUILD / "mirrorctl", "--socket", m.socket, "sync", "run", "x", "--wait"], stderr=said)
    until(lambda: "attempt" in (tmp_path / "said").read_text())
    m.ctl("sync", "stop", "x")
    assert waiting.wait() == 75
    assert re.search(r"^x: attempt 1 of 6 failed: .*503.*; next attempt in [1-9].*$", (tmp_path / "said").read_text(), re.M)
    m.config = CONFIG.format(o.url, 'backoff = "1ms" tries = 3')
    m.reload()
    done = m.ctl("sync", "run", "x", "--wait", check=False)
    assert done.returncode == 69 and "503" in done.stdout


def test_a_folder_that_answers_500_or_404_removes_nothing(m, o):
    o.disturb = lambda path: 500 if path == "pool/03/" else None
    assert run(m, rc=69)["outcome"] == "failed"
    o.disturb = lambda path: 404 if path == "pool/03/" else None
    done = run(m)
    assert done["outcome"] == "published" and done["gone"] == 0
    check(m, o.tree())


def test_origin_dies_in_the_fetch_and_nothing_is_fetched_twice(m, o):
    o.midway = lambda path, at: "cut" if path in ("big/4", "big/5") and at >= 1 << 19 else None
    o.disturb = lambda path: "cut" if path in ("big/4", "big/5") and o.sent.get(path, 0) >= 1 else None
    failed = run(m, rc=69)
    assert failed["outcome"] == "failed"
    check(m, m.old)
    o.midway = o.disturb = None
    here = {p for p in BIG if p not in ("big/4", "big/5")}
    o.forget()
    assert run(m)["outcome"] == "published"
    assert not here & set(o.sent), o.sent
    check(m, o.tree())
    clean(m)


def test_a_cut_file_goes_on_where_it_broke(m, o):
    cut = {p: True for p in BIG}

    def midway(path, at):
        return "cut" if at >= 1 << 19 and cut.pop(path, None) else None
    o.midway = midway
    assert run(m)["outcome"] == "published"
    assert o.bytes < sum(map(len, BIG.values())) + (1 << 20)  # not once more from the start
    check(m, o.tree())


def test_a_file_changes_while_it_comes(m, o):
    def midway(path, at):
        if path == "big/0" and at == 1 << 19 and o.files[path][0] == BIG[path]:
            o.put("big/0", os.urandom(1 << 20), mtime=1700009999)
            return "cut"
        return None
    o.midway = midway
    assert run(m)["outcome"] == "published"
    check(m, o.tree())


def test_a_file_vanishes_between_list_and_fetch(m, o):
    o.disturb = lambda path: 404 if path in ("big/0", "pool/00/file0") else None
    done = run(m)
    assert done["outcome"] == "published" and done["kept"] == 2
    expect = o.tree()
    del expect["big/0"]
    expect["pool/00/file0"] = m.old["pool/00/file0"]
    check(m, expect)
    o.disturb = None
    assert run(m)["outcome"] == "published"
    check(m, o.tree())


def test_an_upstream_that_lost_what_it_lists(m, o):
    for i in range(30):
        o.put(f"more/{i}", str(i))
    o.disturb = lambda path: 404 if path.startswith(("more/", "big/")) and not path.endswith("/") else None
    assert run(m, rc=69)["outcome"] == "failed"
    check(m, m.old)


def test_pages_that_lead_elsewhere(m, o):
    evil = b"""<a href="../../etc/passwd">x</a> <a href="%2e%2e/%2e%2e/secret">x</a> <a href="%2e%2e%2fsecret">x</a>
        <a href="..%2f">x</a> <a href="a%00b">x</a> <a href="a%2Fb">x</a> <a href="//elsewhere.example/f">x</a>
        <a href="http://127.0.0.1:1/f">x</a> <a href="javascript:alert(1)">x</a> <a href="./">x</a> <a href="?C=N">x</a>
        <a href="//">x</a> <a href="good">good</a>  22-Nov-2020 10:00  4 <a href="evil/sub/file">x</a>"""
    o.put("evil/good", b"good", mtime=1606039200)
    o.disturb = lambda path: evil if path == "evil/" else None
    assert run(m)["outcome"] == "published"
    check(m, o.tree())
    assert not [p for p in o.requests if "secret" in p or "passwd" in p or ".." in p]


def test_an_endless_list(mirrord, o):
    m = mirrord(CONFIG.format(o.url, FAST + " max_entries = 500"))
    run(m)
    old = o.tree()
    o.disturb = lambda path: (b'<a href="again/">again/</a>' if path.endswith("/") and "pool/00" in path else None)
    assert run(m, rc=69)["outcome"] == "failed"
    o.disturb = lambda path: ("".join(f'<a href="{i}">{i}</a> 22-Nov-2020 10:00 {i}\n' for i in range(2000)).encode()
                              if path == "pool/00/" else None)
    failed = run(m, rc=69)
    assert "max_entries" in failed["why"]
    check(m, old)


@pytest.mark.parametrize("stage", ["list", "fetch", "late"])
def test_killed_in_every_stage(m, o, stage):
    """SIGKILL: the old snapshot answers after the restart, the next run fetches only what was not stored."""
    gate = threading.Event()
    if stage == "list":
        o.disturb = lambda path: gate.wait(240) and None if path == "pool/03/" else None
    elif stage == "fetch":
        o.midway = lambda path, at: gate.wait(240) and None if path == "big/5" and at > 0 else None
    else:
        o.disturb = lambda path: gate.wait(240) and None if path == "pool/00/file0" else None
    m.ctl("sync", "run", "x")
    if stage != "list":
        fetched(m, 5)
    else:
        comes_to(m, "list")
    m.kill()
    gate.set()
    o.disturb = o.midway = None
    stored = [] if stage == "list" else [p for p in BIG if o.sent.get(p)][:5]
    m.start()
    check(m, m.old)
    assert m.ctl_json("sync", "show", "x")[0]["outcome"] == "interrupted"
    before = dict(o.sent)
    o.forget()
    assert run(m)["outcome"] == "published"
    assert len(set(o.sent) & set(before)) <= 2 or stage == "list", (before, o.sent)
    assert stored is not None
    check(m, o.tree())
    clean(m)


def test_killed_again_and_again_while_a_reader_reads(m, o):
    """Random kills; a reader that asks for two files of one folder in one listing never sees a mixture of snapshots."""
    o.midway = lambda path, at: time.sleep(0.01)
    for i in range(4):
        m.ctl("sync", "run", "x", check=False)
        time.sleep(0.05 + 0.12 * i)
        seen = served(m)
        assert len(seen["entries"]) in (len(m.old), len(o.tree()))
        m.kill()
        m.start()
        seen = served(m)
        assert len(seen["entries"]) in (len(m.old), len(o.tree()))
    o.midway = None
    run(m)
    check(m, o.tree())
    clean(m)


def test_stopped_and_gone_on(m, o):
    gate = threading.Event()
    o.midway = lambda path, at: gate.wait(240) and None if path == "big/5" and at > 0 else None
    m.ctl("sync", "run", "x")
    fetched(m, 6)
    m.ctl("sync", "stop", "x")
    finished(m)
    gate.set()
    o.midway = None
    assert m.ctl_json("sync", "ls")[0]["last"]["outcome"] == "stopped"
    check(m, m.old)
    o.forget()
    assert run(m)["outcome"] == "published"
    assert set(o.sent) <= {"big/5"}
    check(m, o.tree())


def test_sigterm_in_a_run_ends_it_in_order(m, o):
    gate = threading.Event()
    o.midway = lambda path, at: gate.wait(240) and None if path == "big/5" and at > 0 else None
    m.ctl("sync", "run", "x")
    comes_to(m, "fetch")
    m.stop()
    gate.set()
    o.midway = None
    m.start()
    check(m, m.old)
    assert run(m)["outcome"] == "published"


def test_full_store(mirrord, o):
    """The quota is what is full: the run fails and says so, the old snapshot stays; with room it goes on."""
    slow = FAST + " parallel = 1"  # one after another: those that fit are stored
    m = mirrord(CONFIG.format(o.url, slow) + '\nstorage { quota = "4m" reserve = "16m" }')
    run(m)
    m.old = o.tree()
    for path, data in BIG.items():
        o.put(path, data)
    failed = run(m, rc=69)
    assert failed["outcome"] == "failed" and "FAILED" not in lines(m)
    check(m, m.old)
    m.config = CONFIG.format(o.url, slow) + '\nstorage { quota = "64m" reserve = "16m" }'
    m.reload()
    o.forget()
    assert run(m)["outcome"] == "published"
    assert len(set(o.sent)) < len(BIG)  # some were stored before it was full
    check(m, o.tree())
    clean(m)


def test_one_upstream_for_good_another_in_passing(mirrord, o):
    """What the first will never give is no reason to give up the second, which is busy now."""
    busy = [6]  # more than one visit asks for

    def disturb(path):
        busy[0] -= 1
        return 503 if busy[0] >= 0 else None
    with TreeOrigin() as first, TreeOrigin(OLD) as second:
        first.disturb = lambda path: 404
        second.disturb = disturb
        m = mirrord(CONFIG.format(first.url, f'backoff = "100ms" tries = 6 upstreams = {{"{second.url}"}}'))
        done = run(m)
        assert done["outcome"] == "published" and done["upstream"] == second.url
        assert len([p for p in first.requests if p == ""]) == 1, first.requests
        check(m, second.tree())


def test_upstreams_in_order(mirrord, o):
    with TreeOrigin(OLD) as second:
        m = mirrord(CONFIG.format("http://127.0.0.1:1/", FAST + f' upstreams = {{"{second.url}"}}'))
        assert run(m)["outcome"] == "published"
        check(m, second.tree())
        assert second.url in m.ctl_json("sync", "ls")[0]["last"]["upstream"]


def test_collection_leaves_what_waits(m, o):
    """A run that failed has stored files that no snapshot names yet: the collector spares them, and nothing else stays."""
    o.disturb = lambda path: "cut" if path == "big/5" else None
    run(m, rc=69)
    m.ctl("cache", "gc")
    o.disturb = None
    o.forget()
    assert run(m)["outcome"] == "published"
    assert set(o.sent) == {"big/5"}
    check(m, o.tree())
    clean(m)
