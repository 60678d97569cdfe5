"""Programs of the operator's around a run: what they are told, what they may refuse, and that none outlives its welcome."""
import json
import os

import pytest

from harness.mirrord import until
from harness.tree_origin import TreeOrigin
from system.test_sync import CONFIG, FAST, check, lines, run

FILES = {"a": b"1", "b/c": os.urandom(50000), "b/d": b"4", "e": b"5"}


@pytest.fixture
def o():
    with TreeOrigin(FILES) as origin:
        yield origin


@pytest.fixture
def hooked(mirrord, o, tmp_path):
    """Scripts by name; returns a mirrord that starts them."""
    def begin(settings="", **scripts):
        words = [FAST, settings]
        for name, body in scripts.items():
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\ncd {tmp_path}\n{body}\n")
            path.chmod(0o755)
            words.append(f'hook_{name} = {{"{path}", "an argument; $(touch {tmp_path}/shell)"}}')
        return mirrord(CONFIG.format(o.url, " ".join(words)))
    return begin


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def test_none_outlives_a_mirrord_that_is_killed(hooked, tmp_path):
    m = hooked(before="echo $$ > pid.new; mv pid.new pid; exec sleep 600")
    m.ctl("sync", "run", "x")
    until((tmp_path / "pid").exists)
    m.child.kill()
    m.child.wait()
    m.child = None
    until(lambda: gone((tmp_path / "pid").read_text().strip()))


def test_each_is_told_what_happened(hooked, o, tmp_path):
    tell = 'env | grep "^MIRRORD_" | sort > env.$MIRRORD_HOOK; cat > json.$MIRRORD_HOOK; echo "$1" > arg'
    m = hooked(before=tell, published=tell, held=tell, failed=tell)

    def told(hook):
        env = dict(line.split("=", 1) for line in (tmp_path / f"env.{hook}").read_text().splitlines())
        return env, json.loads((tmp_path / f"json.{hook}").read_text())
    done = run(m)
    env, doc = told("published")
    assert env["MIRRORD_REPO"] == doc["repo"] == "x" and env["MIRRORD_SEQ"] == "1" and doc["seq"] == 1
    assert env["MIRRORD_RUN"] == "1" and env["MIRRORD_ROOT"] == doc["root"] == done["root"]
    assert env["MIRRORD_OUTCOME"] == doc["outcome"] == "published" and env["MIRRORD_UPSTREAM"] == o.url
    assert f"new={len(FILES)} " in env["MIRRORD_COUNTS"] and doc["files_done"] == len(FILES)
    assert told("before")[1]["outcome"] == "running"
    assert (tmp_path / "arg").read_text().startswith("an argument; $(touch") and not (tmp_path / "shell").exists()
    (tmp_path / "env.published").unlink()
    assert run(m)["outcome"] == "unchanged" and not (tmp_path / "env.published").exists()
    o.rm("b/c", "b/d", "e")
    assert run(m, rc=75)["outcome"] == "held"
    env, doc = told("held")
    assert "half" in env["MIRRORD_WHY"] and "half" in doc["why"] and not (tmp_path / "env.published").exists()
    m.ctl("sync", "approve", "x")
    assert told("published")[1]["seq"] == doc["seq"]
    o.disturb = lambda path: 500
    run(m, rc=69)
    assert "500" in told("failed")[0]["MIRRORD_WHY"]
    (tmp_path / "env.before").unlink()
    o.disturb = None
    run(m, "--dry-run")
    assert not (tmp_path / "env.before").exists()


def test_before_may_refuse(hooked, o, tmp_path):
    m = hooked(before="echo the disk is away; test -e go || exit 3", failed="echo $MIRRORD_WHY > why")
    refused = run(m, rc=69)
    assert refused["outcome"] == "failed" and "hook_before exited with 3" in refused["why"] and not o.requests
    assert "hook_before: the disk is away" in lines(m) and "exited with 3" in (tmp_path / "why").read_text()
    (tmp_path / "go").touch()
    assert run(m)["outcome"] == "published"
    check(m, FILES)


def test_a_failing_one_undoes_nothing(hooked):
    m = hooked(published="seq 1000; echo oops >&2; exit 1")
    assert run(m)["outcome"] == "published"
    check(m, FILES)
    log = lines(m)
    assert "hook_published: 1\n" in log and "hook_published exited with 1" in log and "801 more lines" in log
    assert m.ctl_json("sync", "ls")[0]["state"] == "published"


def test_a_slow_one_is_ended_with_all_it_started(hooked, tmp_path):
    m = hooked('hook_timeout = "5s"', published="sleep 900 & echo $! > pid; wait")
    assert run(m)["outcome"] == "published"
    assert "longer than hook_timeout" in lines(m)
    until(lambda: gone((tmp_path / "pid").read_text().strip()))


@pytest.mark.parametrize("how", ["stop", "sigterm", "removed"])
def test_a_stop_ends_it(hooked, tmp_path, how):
    m = hooked(published="sleep 900 & echo $! > pid2; mv pid2 pid; wait")
    m.ctl("sync", "run", "x")
    until((tmp_path / "pid").exists)
    assert m.ctl_json("sync", "ls")[0]["state"] == "hook"
    check(m, FILES)
    if how == "stop":
        m.ctl("sync", "stop", "x")
        until(lambda: not m.ctl_json("sync", "ls")[0]["running"])
    elif how == "removed":
        m.config = 'repo "y" { protocol = "hosted" }'
        m.reload()
    else:
        m.stop()
    until(lambda: gone((tmp_path / "pid").read_text()))
    if how == "sigterm":
        m.start()
        assert m.ctl_json("sync", "show", "x")[0]["outcome"] == "published"


def test_it_keeps_nobody_waiting(hooked, o, tmp_path, mirrord):
    """One repo's program hangs; another one of the same upstream, whose runs go one by one, publishes meanwhile."""
    m = hooked(published="touch there; sleep 900")
    other = f'repo "y" {{ protocol = "generic" origin = "{o.url}" sync {{ {FAST} schedule = "every 1s" }} }}'
    m.ctl("sync", "run", "x")
    until((tmp_path / "there").exists)
    m.config = "sync_runs = 1\n" + m.config + "\n" + other
    m.reload()
    until(lambda: m.get("/y/a").body == b"1")
    m.ctl("sync", "stop", "x")


def test_what_cannot_be_started_is_refused_early(hooked, o):
    m = hooked()
    for words, says in (('{"notify"}', "absolute path"), ('{"/nonexistent/notify"}', "is missing"), ('{"/etc/passwd"}', "not executable")):
        m.config = CONFIG.format(o.url, FAST + f" hook_failed = {words}")
        m.write_config()
        done = m.ctl("config", "reload", check=False)
        assert done.returncode == 78 and says in done.stderr
