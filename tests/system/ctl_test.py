"""mirrorctl against a running mirrord: every verb once, what it prints, what it exits with; the metrics' text."""
import base64
import hashlib
import json
import os
import re
import socket
import subprocess

import pytest

from harness.mirrord import BUILD

CONFIG = 'repo "data" {{ protocol = "generic" origin = "{0}/" }}\nrepo "models" {{ protocol = "hosted" }}'


@pytest.fixture
def m(mirrord, origin):
    m = mirrord(CONFIG.format(origin.url))
    m.origin = origin
    return m


def settled(m, key):
    m.origin.put(f"/{key}", size=1 << 20)
    assert m.get(f"/data/{key}").status == 200
    m.settle()


def test_cache_verbs(m):
    settled(m, "a")
    settled(m, "b")
    assert [r["key"] for r in m.ctl_json("cache", "ls", "data")] == ["a", "b"]
    assert [r["key"] for r in m.ctl_json("cache", "ls", "data", "b")] == ["b"]
    m.ctl("cache", "pin", "data/a")
    assert m.ctl_json("cache", "pins") == [{"scope": "data/a", "owner": "mirrorctl"}]
    m.ctl("cache", "unpin", "data/a")
    assert m.ctl_json("cache", "pins") == []
    assert m.ctl_json("cache", "rm", "--dry-run", "data/a")["would_remove"] == 1
    assert m.ctl_json("cache", "rm", "data/a")["removed"] == 1
    assert m.ctl("cache", "rm", "data", check=False).returncode == 64
    assert m.ctl_json("cache", "rm", "--all", "data")["removed"] == 1
    assert m.ctl_json("cache", "stats")["fills"] >= 2
    assert "blobs" in m.ctl_json("cache", "gc", "--dry-run")


def test_tokens_and_snapshots(m):
    token = m.token("ci", "publish:models/*")
    for text in (b"one", b"two"):
        assert m.put("/models/me/m/x", text, token=token).status in (200, 201, 204)
    assert [s["seq"] for s in m.ctl_json("snapshot", "ls", "models", "me/m")][:1] == [2]
    assert m.ctl_json("snapshot", "rollback", "models", "me/m", "v1")["seq"] == 1
    assert m.get("/models/me/m/x").body == b"one"
    listed = m.ctl("token", "ls").stdout
    assert "ci" in listed and token not in listed
    m.ctl("token", "revoke", "ci")
    assert m.put("/models/me/m/x", b"three", token=token).status == 401


def test_errors_say_what_why_and_what_to_do(m):
    for args, code, says in (
            (("statsu",), 64, 'did you mean "status"?'),
            (("cache", "sl"), 64, 'did you mean "cache ls"?'),
            (("cache", "ls"), 64, "takes REPO [PREFIX]"),
            (("cache", "ls", "none"), 66, "there is no repo"),
            (("repo", "ls", "--all"), 64, "does not belong"),
            (("token", "create", "--name", "x", "--scope", "x"), 65, "is no scope"),
            (("--socket", "/nonexistent", "status"), 69, "does not answer")):
        done = m.ctl(*args, check=False)
        assert (done.returncode, done.stdout) == (code, "") and says in done.stderr, (args, done)


def test_upstream_check(m):
    assert [r["up"] for r in m.ctl_json("upstream", "check")] == [True]
    m.origin.close()
    assert m.ctl("upstream", "check", check=False).returncode == 69


def test_reload_is_refused_with_the_line(m):
    m.conf.write_text(m.conf.read_text() + "thredas = 2\n")
    done = m.ctl("config", "reload", check=False)
    assert done.returncode == 78 and 'did you mean "threads"?' in done.stderr
    done = m.ctl("-c", str(m.conf), "config", "test", check=False)
    assert done.returncode == 78
    assert m.metric("mirrord_config_last_reload_successful") == 0


def test_verify_with_and_without_a_daemon(m):
    settled(m, "a")
    assert m.ctl_json("verify", "--deep")["clean"] is True
    m.stop()
    assert m.ctl("-c", str(m.conf), "verify").returncode == 0


def test_the_socket_takes_bad_requests(m):
    for request in (b"\n", b"{}\n", b"[]\n", b'{"verb": 5}\n', b'{"verb": "nosuch"}\n', b"\xff\x00\n", b'{"verb": "cache.ls"}\n'):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(str(m.socket))
            s.sendall(request)
            assert "error" in json.loads(s.makefile().readline())
    with socket.socket(socket.AF_UNIX) as s:  # a request without end is cut off
        s.settimeout(20)
        s.connect(str(m.socket))
        try:
            s.sendall(b"x" * (1 << 20))
            assert s.recv(1) == b""
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert m.ctl("status").returncode == 0


def test_init_writes_a_configuration_that_passes(tmp_path):
    conf = tmp_path / "mirrord.conf"
    run = [BUILD / "mirrorctl", "init", conf]
    assert subprocess.run(run, check=False, capture_output=True, timeout=120).returncode == 0
    assert subprocess.run([BUILD / "mirrord", "-t", "-c", conf], check=False, timeout=60).returncode == 0
    assert subprocess.run(run, check=False, capture_output=True, timeout=120).returncode == 73


@pytest.mark.parametrize("open_metrics", [False, True])
def test_metrics_text(m, open_metrics):
    """Read back strictly: every sample has its TYPE before it, no name twice, buckets grow, counters end in _total."""
    settled(m, "a")
    accept = {"Accept": "application/openmetrics-text"} if open_metrics else {}
    lines = m.get("/metrics", headers=accept).body.decode().split("\n")
    assert lines.pop() == "" and (not open_metrics or lines.pop() == "# EOF")
    types, seen, buckets = {}, set(), []
    for line in lines:
        if line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name not in types and not (open_metrics and kind == "counter" and name.endswith("_total"))
            types[name] = kind
        elif not line.startswith("# HELP "):
            found = re.fullmatch(r'([a-z_:][a-z0-9_:]*)(\{(?:[a-z_]+="[^"\\\n]*",?)*\})? (\S+)', line)
            assert found, line
            assert (found[1], found[2]) not in seen, line
            seen.add((found[1], found[2]))
            value = float(found[3])
            base = re.sub(r"_(bucket|sum|count)$", "", found[1])
            kind = types.get(found[1]) or types.get(base) or types.get(re.sub(r"_total$", "", found[1]))
            assert kind, line
            if kind == "counter":
                assert found[1].endswith("_total") and value >= 0
            if found[1].endswith("_bucket"):
                buckets.append(value)
    assert buckets == sorted(buckets) and buckets
    assert ("mirrord_upstream_requests_total", '{repo="data"}') in seen
    assert any(name == "mirrord_build_info" for name, _ in seen)


def test_the_page_admits_only_its_own_script(m):
    page = m.get("/")
    policy = page["content-security-policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy and len(re.findall("'sha256-", policy)) == 2
    text = page.body.decode()
    for tag in ("style", "script"):
        inside = re.search(f"<{tag}>(.*?)</{tag}>", text, re.S)[1]
        assert base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() in policy
    assert f"http://127.0.0.1:{m.port}/data/" in text


def test_strangers_are_kept_out(m):
    assert oct(os.stat(m.socket).st_mode & 0o777) == "0o660"
