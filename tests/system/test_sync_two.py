"""Several people, several settings, at once: one run a repo, clear words for the second, and nothing lost when a configuration
changes in the middle of a run. What a run tells about itself."""
import json
import os
import subprocess
import threading

import pytest

from harness.mirrord import until
from harness.tree_origin import TreeOrigin
from system.test_sync import CONFIG, FAST, check, lines, run

FILES = {"a": b"1", "b/c": os.urandom(50000), "b/d": b"4", "e": b"5", "large": os.urandom(1 << 20)}


@pytest.fixture
def o():
    with TreeOrigin(FILES) as origin:
        origin.gate = threading.Event()
        origin.midway = lambda path, at: origin.gate.wait(240) and None if path == "large" else None
        yield origin
        origin.gate.set()


@pytest.fixture
def m(mirrord, o):
    return mirrord(CONFIG.format(o.url, FAST))


def last(m):
    return m.ctl_json("sync", "ls")[0]


def fetching(m):
    now = last(m)
    return now["running"] and now["last"].get("files_done", 0) >= len(FILES) - 1


def begin(m):
    m.ctl("sync", "run", "x")
    until(lambda: fetching(m))


def test_a_second_one_is_told_who_is_at_it(m, o):
    first = subprocess.Popen([m.build / "mirrorctl", "--socket", m.socket, "--json", "sync", "run", "x", "--wait"],
                             stdout=subprocess.PIPE)
    until(lambda: fetching(m))
    for flags in ((), ("--wait",), ("--dry-run",)):
        second = m.ctl("sync", "run", "x", *flags, check=False)
        assert second.returncode == 75 and "run 1 of" in second.stderr and "under way" in second.stderr
    o.gate.set()
    assert json.loads(first.communicate(timeout=240)[0])["outcome"] == "published" and first.returncode == 0
    check(m, o.tree())
    assert len(m.ctl_json("sync", "show", "x")) == 1


def test_by_hand_while_it_is_paused(m, o):
    o.gate.set()
    m.ctl("sync", "pause", "x")
    assert run(m)["outcome"] == "published"
    assert last(m)["state"] == "paused" and last(m)["paused"]


def test_paused_twice_and_gone_on_twice(m, o):
    begin(m)
    m.ctl("sync", "pause", "x")
    m.ctl("sync", "pause", "x")
    assert not last(m)["running"]
    m.ctl("sync", "resume", "x")
    m.ctl("sync", "resume", "x")
    o.gate.set()
    assert run(m)["outcome"] == "published"


def test_settings_change_in_the_middle(m, o):
    """The run ends as it began, the next one has the new ones."""
    begin(m)
    m.config = CONFIG.format(o.url, FAST + " max_entries = 3")
    m.reload()
    assert last(m)["running"]
    o.gate.set()
    until(lambda: not last(m)["running"])
    assert last(m)["state"] == "published"
    check(m, o.tree())
    assert "max_entries" in run(m, rc=69)["why"]
    check(m, o.tree())


@pytest.mark.parametrize("back", [False, True])
def test_the_repo_goes_in_the_middle(m, o, back):
    begin(m)
    m.config = 'repo "y" { protocol = "hosted" }'
    m.reload()
    if not back:
        until(lambda: m.ctl_json("sync", "ls") == [])
        assert m.ctl("sync", "run", "x", check=False).returncode == 66
        o.gate.set()
        m.config = CONFIG.format(o.url, FAST)
        m.reload()
    else:  # at once
        m.config = CONFIG.format(o.url, FAST)
        m.reload()
        o.gate.set()
    until(lambda: not last(m)["running"])  # its old run may not have ended
    assert run(m)["outcome"] == "published"
    check(m, o.tree())
    m.ctl("verify", "--deep")


def test_what_it_tells_while_it_runs(m, o):
    begin(m)
    row = last(m)["last"]
    assert row["stage"] == "fetch" and row["files_todo"] == len(FILES) and row["bytes_todo"] > 1 << 20
    assert row["upstream"] == o.url and {"rate_bytes_per_s", "left_s"} <= set(row)
    shown = m.ctl("sync", "show", "x").stdout
    assert f"run 1 is in stage fetch, from {o.url}" in shown and f"{len(FILES) - 1} of {len(FILES)} files" in shown
    until(lambda: f"{len(FILES) - 1} of {len(FILES)} files" in m.get("/").body.decode())
    o.gate.set()
    until(lambda: not last(m)["running"])
    o.rm("a", "b/c", "b/d", "e")
    waited = m.ctl("sync", "run", "x", "--wait", check=False)
    assert waited.returncode == 75 and "x: " in waited.stderr
    shown = m.ctl("sync", "show", "x").stdout
    assert "v2 is held, " in shown and "`mirrorctl sync approve x` publishes it" in shown
    until(lambda: 'class="bad">held' in m.get("/").body.decode())


def test_a_dry_run_names_what_would_change(m, o):
    o.gate.set()
    run(m)
    o.put("new", b"12345")
    o.put("a", b"other", mtime=1700009999)
    o.rm("e")
    said = m.ctl("sync", "run", "x", "--dry-run").stdout
    assert "+ new, 5 bytes\n" in said and "~ a, 5 bytes\n" in said and "- e, 1 bytes\n" in said and "large" not in said
    assert m.get("/x/e").status == 200


def test_our_own_trace(mirrord, o):
    o.gate.set()
    m = mirrord(CONFIG.format(o.url, FAST + ' trace = "project/trace/mirror.example" max_delete = "2"'))
    assert run(m)["outcome"] == "published"
    first = m.get("/x/project/trace/mirror.example").body.decode()
    assert "UTC 20" in first.splitlines()[0] and "Upstream-mirror: 127.0.0.1\n" in first and "Creator: mirrord" in first
    check(m, {**o.tree(), "project/trace/mirror.example": first.encode()})
    again = run(m)
    assert (again["outcome"], again["gone"]) == ("unchanged", 0)
    o.put("project/trace/mirror.example", b"theirs")  # of the same name: ours stays
    o.put("new", b"1")
    assert run(m)["outcome"] == "published" and run(m)["outcome"] == "unchanged"
    assert b"Creator: mirrord" in m.get("/x/project/trace/mirror.example").body
    o.rm("a", "b/c", "b/d")
    held = run(m, rc=75)
    assert run(m, rc=75)["seq"] == held["seq"]
    m.config = CONFIG.format(o.url, FAST)
    m.reload()
    m.ctl("sync", "approve", "x")
    assert run(m)["outcome"] == "published"  # it is wanted no more
    assert m.get("/x/project/trace/mirror.example").body == b"theirs"
    m.ctl("verify", "--deep")


def test_what_is_counted(m, o):
    o.gate.set()
    run(m)
    o.put("new", b"1")
    o.rm("e")
    run(m)
    o.disturb = lambda path: 500
    run(m, rc=69)
    until(lambda: m.metric("mirrord_sync_failed_attempts_total", repo="x") == 2)
    assert m.metric("mirrord_sync_fetched_files_total", repo="x") == len(FILES) + 1
    assert m.metric("mirrord_sync_entries_total", repo="x", action="new") == len(FILES) + 1
    assert m.metric("mirrord_sync_entries_total", repo="x", action="gone") == 1
    assert "attempt 2" in lines(m)


def test_jitter_is_the_same_each_time(mirrord, o):
    """Up to so much later than the line says, always by the same, other repos by another."""
    repos = "\n".join(f'repo "r{i}" {{ protocol = "generic" origin = "{o.url}" '
                      f'sync {{ schedule = "0 0 1 1 *" jitter = "1h" }} }}' for i in range(6))
    m = mirrord(repos)
    first = {r["repo"]: r["next_unix_s"] % 86400 for r in m.ctl_json("sync", "ls")}
    assert all(0 <= s <= 3600 for s in first.values()) and len(set(first.values())) > 3
    m.stop()
    m.start()
    assert first == {r["repo"]: r["next_unix_s"] % 86400 for r in m.ctl_json("sync", "ls")}
