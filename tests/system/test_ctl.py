"""mirrorctl against a running mirrord: every verb once, what it prints, what it exits with; the metrics' text."""
import base64
import hashlib
import json
import os
import pty
import re
import shutil
import signal
import socket
import stat
import subprocess
import threading

import pytest

from harness.mirrord import BUILD, ROOT, SLOW, free_port, until
from harness.origin import Origin
from harness.tree_origin import TreeOrigin

CONFIG = ('repo "data" {{ protocol = "generic" origin = "{0}/" }}\nrepo "models" {{ protocol = "hosted" }}\n'
          'repo "tree" {{ protocol = "generic" origin = "{1}" sync {{ }} }}')


@pytest.fixture
def m(mirrord):
    """Its origin's port is nobody else's after it has closed."""
    with Origin(port=free_port()) as origin, TreeOrigin({"a/b": b"1", "c": b"2"}) as tree:
        m = mirrord(CONFIG.format(origin.url, tree.url))
        m.origin = origin
        yield m


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
    refused = m.ctl("cache", "rm", "models/me", check=False)
    assert refused.returncode == 64 and "hosted" in refused.stderr


def test_cache_ls_says_how_fresh_by_the_rules_in_force(mirrord, origin):
    rules = "rule '\\.deb$' {{ class = immutable }} rule '^dists/' {{ ttl = {} }} rule '^gone/' {{ class = {} }}"
    config = f'repo "data" {{{{ protocol = "generic" origin = "{origin.url}/" {rules} }}}}'
    m = mirrord(config.format("1h", "mutable"))
    for path in ("pool/a%20b%2Fc.deb", "dists/Release", "gone/x"):
        origin.put(f"/{path}", size=10)
        assert m.get(f"/data/{path}").status == 200
    m.settle()
    states = lambda: {r["key"]: r["state"] for r in m.ctl_json("cache", "ls", "data")}  # noqa: E731
    assert states() == {"pool/a b%2Fc.deb": "immutable", "dists/Release": "fresh", "gone/x": "fresh"}
    m.config = config.format("0s", "deny")
    m.reload()
    assert states() == {"pool/a b%2Fc.deb": "immutable", "dists/Release": "stale", "gone/x": "unreachable"}
    seen = {line.split("\t")[0]: line.split("\t")[3] for line in m.ctl("cache", "ls", "data").stdout.splitlines()}
    assert seen["data/pool/a b%2Fc.deb"] == "immutable" and re.fullmatch(r"stale \d{10}", seen["data/dists/Release"])


def test_a_scope_for_no_repo_is_warned_of(m):
    made = m.ctl("token", "create", "--name", "slip", "--scope", "publish:modles/*", "--scope", "read:mod*",
                 "--scope", "read:models/me/*")
    assert made.stdout.startswith("mrd_")  # it may come before its repo
    assert made.stderr.splitlines() == [
        "mirrorctl: warning: the scope publish:modles/* matches no existing repo; did you mean models?"]
    assert m.ctl("token", "create", "--name", "good", "--scope", "read:*").stderr == ""


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


def test_a_version_that_is_not_there(m):
    said = m.ctl("snapshot", "show", "models", "me/m", "v9", check=False).stderr
    assert said == ("mirrorctl: models/me/m has no snapshot: nothing was published there; "
                    "see `mirrorctl snapshot ls models`\n")
    assert m.put("/models/me/m/x", b"one", token=m.token("ci", "publish:models/*")).status == 201
    for verb, more in (("rollback", ()), ("show", ()), ("tag", ("bad",)), ("rm", ())):
        said = m.ctl("snapshot", verb, "models", "me/m", "v9", *more, check=False).stderr
        assert said == ('mirrorctl: models/me/m has no version "v9": no snapshot has that number or label; '
                        "see `mirrorctl snapshot ls models me/m`\n"), verb
    said = m.ctl("snapshot", "rollback", "tree", "v9", check=False).stderr
    assert said == ('mirrorctl: tree has no version "v9": no snapshot has that number or label; '
                    "see `mirrorctl snapshot ls tree`\n")
    assert "there is no repo" in m.ctl("snapshot", "rollback", "none", "v1", check=False).stderr


def test_errors_say_what_why_and_what_to_do(m):
    for args, code, says in (
            (("statsu",), 64, 'did you mean "status"?'),
            (("cache", "sl"), 64, 'did you mean "cache ls"?'),
            (("cache", "ls"), 64, "takes REPO [PREFIX]"),
            (("cache", "ls", "none"), 66, "there is no repo \"none\"; see `mirrorctl repo ls`"),
            (("cache", "ls", "modle"), 66, "there is no repo \"modle\"; did you mean \"models\"?"),
            *((("sync", verb, "none"), 66, "there is no repo \"none\"; see `mirrorctl repo ls`")
              for verb in ("run", "show", "logs", "pause", "resume", "stop", "approve")),
            (("sync", "run", "data"), 66, "repo \"data\" is not synced: it has no sync section"),
            (("repo", "ls", "--all"), 64, "is not an option of"),
            (("token", "create", "--name", "x", "--scope", "x"), 65, "is not a scope"),
            (("--socket", "/nonexistent", "status"), 69, "does not answer")):
        done = m.ctl(*args, check=False)
        assert (done.returncode, done.stdout) == (code, "") and says in done.stderr, (args, done)


# Every verb of verbs.def: a call that goes well, one that fails with its exit code (None: it cannot by its arguments).
VERBS = {
    "status": ([], None),
    "top": (["--once"], None),
    "repo ls": ([], None),
    "repo show": (["data"], (["none"], 66)),
    "cache ls": (["data"], (["none"], 66)),
    "cache stats": ([], None),
    "cache pin": (["data/a"], (["none/a"], 66)),
    "cache pins": ([], None),
    "cache unpin": (["data/a"], (["data/a"], 66)),
    "cache rm": (["data/a"], (["data"], 64)),
    "cache refresh": (["data", "a"], (["none", "x"], 66)),
    "cache gc": ([], None),
    "verify": ([], None),
    "sync ls": ([], None),
    "sync run": (["tree", "--wait"], (["data"], 66)),
    "sync show": (["tree"], (["data"], 66)),
    "sync logs": (["tree"], (["data"], 66)),
    "sync pause": (["tree"], (["data"], 66)),
    "sync resume": (["tree"], (["data"], 66)),
    "sync stop": (["tree"], (["data"], 66)),
    "sync approve": (None, (["tree"], 66)),
    "snapshot ls": (["models", "me/m"], (["models", "me/none"], 66)),
    "snapshot show": (["models", "me/m", "v1"], (["models", "me/m", "v9"], 66)),
    "snapshot diff": (["models", "me/m", "v1"], (["models", "me/m", "v9"], 66)),
    "snapshot tag": (["models", "me/m", "v1", "good"], (["models", "me/m", "v9", "bad"], 66)),
    "snapshot rollback": (["models", "me/m", "v1"], (["models", "me/m", "v9"], 66)),
    "snapshot hold": (["models", "me/m"], (["models", "me/none"], 66)),
    "snapshot rm": (["models", "me/m", "v2"], (["models", "me/m", "v9"], 66)),
    "hf ls": ([], (["none"], 66)),
    "hf show": (["models/me/m"], (["models/me/none"], 66)),
    "hf prefetch": ([], (["models/me/m"], 64)),
    "hf pin": (None, (["models/me/m"], 64)),
    "hf unpin": (None, (["models/me/m"], 64)),
    "hf rollback": (["models/me/m", "v1"], (["models/me/m", "v9"], 66)),
    "hf export": (None, (["models/me/none", "--to", "/nonexistent/x"], 66)),
    "hf import": (None, (["/nonexistent/x"], 66)),
    "token create": (["--name", "a", "--scope", "read:*"], (["--name", "a", "--scope", "read:*"], 73)),
    "token ls": ([], None),
    "token revoke": (["a"], (["a"], 66)),
    "peers ls": (None, ([], 66)),
    "upstream check": ([], (["none"], 66)),
    "cluster status": ([], None),
    "cluster nodes": ([], None),
    "cluster drain": (None, ([], 69)),
    "cluster void": (None, (["1"], 78)),
    "cluster adopt": (None, ([], 78)),
    "cluster leave": (None, (["--local"], 78)),
    "cluster check": (None, ([], 78)),
    "cluster gc": ([], None),
    "cluster verify": ([], None),
    "config test": ([], None),
    "config reload": ([], None),
    "tls init": ([], (["--csr"], 73)),
    "init": (["-"], (["/nonexistent/x"], 66)),
}


def test_every_verb_speaks_json(m, tmp_path):
    """One value on stdout whatever happens; a failure is {"error": {...}} with the exit code in it."""
    listed = re.findall(r'^VERB\("([^"]*)", "([^"]*)"', (ROOT / "server/ctl/verbs.def").read_text(), re.M)
    assert {" ".join(v).strip() for v in listed} == set(VERBS)
    settled(m, "a")
    token = m.token("ci", "publish:models/*")
    m.put("/models/me/m/x", b"one", token=token)
    m.put("/models/me/m/x", b"two", token=token)
    for verb, (good, bad) in VERBS.items():
        def run(args, words=verb.split()):
            done = m.ctl("--json", "-c", m.conf, *words, *args, check=False)
            return done, json.loads(done.stdout)
        if good is not None:
            done, said = run(good)
            assert done.returncode == 0 and done.stderr == "" and "error" not in said, (verb, done)
        good = bad[0] if good is None else good
        if bad:
            done, said = run(bad[0])
            error = said["error"]
            assert (done.returncode, error["exit"]) == (bad[1], bad[1]) and error["text"] in done.stderr, (verb, done)
        done, said = run(["--nosuch"])
        assert done.returncode == 64 and said["error"]["code"] == "E_USAGE", (verb, done)
        if verb not in ("init", "tls init", "verify", "cluster check", "cluster void", "cluster leave", "config test"):
            done = m.ctl("--json", "--socket", tmp_path / "none", *verb.split(), *good, check=False)
            assert done.returncode == 69 and json.loads(done.stdout)["error"]["code"] == "E_NETWORK", (verb, done)


def test_json_without_a_daemon(m):
    m.stop()
    verified = m.ctl("--json", "-c", m.conf, "verify")
    assert json.loads(verified.stdout)["clean"] is True and json.loads(verified.stdout)["findings"] == []
    m.conf.write_text(m.conf.read_text() + "thredas = 2\n")
    wrong = m.ctl("--json", "-c", m.conf, "config", "test", check=False)
    said = json.loads(wrong.stdout)
    assert wrong.returncode == 78 and said["ok"] is False
    assert (said["error"]["file"], said["error"]["exit"]) == (str(m.conf), 78)
    assert m.conf.read_text().split("\n")[said["error"]["line"] - 1] == "thredas = 2"


def test_a_wrong_configuration_does_not_hide_its_daemon(m):
    """It runs by what the file was before: it is reached, and a reload names the line."""
    good = m.conf.read_text()
    assert f'state_dir = "{m.state}"' in good and "control.sock" in good
    run = lambda *words: subprocess.run([BUILD / "mirrorctl", "-c", m.conf, *words], capture_output=True, text=True, check=False)  # noqa: E731
    (m.state / "control.sock").symlink_to(m.socket)
    for text in (good, re.sub(r"control_socket = .*", "", good)):
        m.conf.write_text(text + '\nthredas = 2\n# state_dir = "/nowhere"\nstate_dir = \n')
        line = m.conf.read_text().splitlines().index("thredas = 2") + 1
        assert run("status").stdout.count("mirrord ") and run("token", "ls").stderr == ""
        refused = run("config", "reload")
        assert refused.returncode == 78 and f"{m.conf}:{line}: " in refused.stderr and "thredas" in refused.stderr, refused
    m.conf.write_text("thredas = 2\n")
    done = run("status")
    assert done.returncode == 78 and f"{m.conf}:1: " in done.stderr and "--socket STATE_DIR/control.sock" in done.stderr, done
    m.conf.write_text(good)


def test_a_list_that_ends_early_says_so(m):
    for key in "abc":
        settled(m, key)
    for json_flag in ([], ["--json"]):
        done = m.ctl(*json_flag, "cache", "ls", "data", "--limit", "2")
        assert "--limit" in done.stderr and "data/c" not in done.stdout
        assert m.ctl(*json_flag, "cache", "ls", "data", "--limit", "3").stderr == ""


def test_top_sees_fills_rates_and_clients(m):
    m.origin.put("/slow", size=256 << 20, rate=1 << 20)
    client = threading.Thread(target=lambda: m.get("/data/slow", limit_s=600))
    client.start()
    until(lambda: m.origin.stats("/slow").bytes)
    looks = []

    def flows():  # an origin that was not scheduled meanwhile sends nothing
        looks.append(m.ctl_json("top", "--once", "--interval", "300ms"))
        return looks[-1]["per_s"]["upstream_bytes"] > 0 and looks[-1]["clients"][0]["per_s"]["bytes_out"] > 0
    until(flows)
    look = looks[-1]
    fill = look["fills"][0]
    assert (fill["key"], fill["total"], fill["readers"]) == ("slow", 256 << 20, 1)
    assert look["clients"][0]["address"] == "127.0.0.1" and look["clients"][0]["bytes_out"] > 0
    plain = m.ctl("top", "--interval", "50ms").stdout  # without a terminal: one look
    assert re.search(r"^data/slow\t[#.]{20}\t\d+\t268435456\t", plain, re.M) and "127.0.0.1\t" in plain
    stream = subprocess.Popen([BUILD / "mirrorctl", "--socket", m.socket, "--json", "top", "--interval", "50ms"],
                              stdout=subprocess.PIPE)
    looks = [json.loads(stream.stdout.readline()) for _ in range(3)]
    stream.terminate()
    stream.wait()
    assert looks[0]["now_ms"] < looks[2]["now_ms"]
    m.kill()
    client.join()


def test_upstream_check(m):
    assert [r["up"] for r in m.ctl_json("upstream", "check")] == [True, True]
    m.origin.close()
    assert m.ctl("upstream", "check", check=False).returncode == 69


def test_a_stop_does_not_wait_for_a_silent_origin(mirrord):
    """It would be given half a minute."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        m = mirrord(CONFIG.format(f"http://127.0.0.1:{silent.getsockname()[1]}", "http://127.0.0.1:1/"))
        check = subprocess.Popen([BUILD / "mirrorctl", "--socket", m.socket, "upstream", "check"], stderr=subprocess.DEVNULL)
        asked, _ = silent.accept()
        m.stop(limit_s=25)
        assert check.wait() != 0
        asked.close()


def troubles(m):
    """{(kind, repo): the trouble}, as --json has them; the exit code goes with them."""
    done = m.ctl("--json", "status", check=False)
    found = {(t["kind"], t["repo"]): t for t in json.loads(done.stdout)["trouble"]}
    assert done.returncode == (1 if found else 0), done
    return found


def soon(look):
    """What `look` gives once there is something: the status is made anew once a second."""
    found = []
    until(lambda: found.append(look()) or found[-1])
    return found[-1]


def test_status_begins_with_an_origin_that_fails(m):
    assert troubles(m) == {} and m.ctl("status").stdout.startswith("mirrord ")
    m.origin.close()
    for n in range(5):
        assert m.get(f"/data/{n}").status >= 500
    seen = soon(lambda: troubles(m))
    assert set(seen) == {("origin", "data")} and seen["origin", "data"]["since_unix_s"] > 0
    done = m.ctl("status", check=False)
    first, second = done.stdout.splitlines()[:2]
    assert done.returncode == 1 and re.match(r"TROUBLE data: the last \d requests to the origin failed: .*, for \d", first), done.stdout
    assert f"127.0.0.1:{m.origin.port}: cannot connect: Connection refused" in first, first
    assert "only cached objects are served until it answers" in second and "`mirrorctl upstream check data`" in second, second
    assert "mirrorctl upstream check data" in m.get("/").body.decode()
    assert m.ctl("--quiet", "status", check=False).returncode == 1
    with Origin(port=m.origin.port):  # it answers again: the first answer ends the trouble
        assert m.ctl("upstream", "check", "data").returncode == 0
        assert troubles(m) == {}


def test_an_origin_that_answers_by_5xx_fails(m):
    m.origin.put("/good", size=10)
    for n in range(3):
        m.origin.put(f"/bad{n}", status=500, size=10)
        m.get(f"/data/bad{n}")
    seen = soon(lambda: troubles(m))
    assert "it answered 500" in seen["origin", "data"]["what"]
    assert m.get("/data/good").status == 200
    until(lambda: not troubles(m))


def test_what_others_may_not_see_is_no_trouble_for_them(mirrord):
    """Of a private repo they learn that its origin fails, but neither how nor where it is."""
    m = mirrord('repo "data" { protocol = "generic" origin = "http://127.0.0.1:1/secret-place/" access { anonymous = none } }')
    token = m.token("ci", "read:data/*")
    for n in range(3):
        m.get(f"/data/{n}", headers={"Authorization": f"Bearer {token}"})
    assert ": " in soon(lambda: troubles(m))["origin", "data"]["what"]
    told, = soon(lambda: json.loads(m.get("/-/status.json").body)["trouble"])
    assert told["what"].endswith("requests to the origin failed"), told
    for seen in (m.get("/-/status.json").body, m.get("/").body, m.get("/data/1").body):
        assert b"127.0.0.1:1:" not in seen and b"secret-place" not in seen and b"refused" not in seen, seen


def test_syncs_that_fail_or_wait_are_trouble(mirrord):
    with TreeOrigin({f"f{n}": b"x" for n in range(20)}) as tree:
        m = mirrord(f'repo "tree" {{ protocol = "generic" origin = "{tree.url}" sync {{ tries = 1 }} }}')
        m.ctl("sync", "run", "tree", "--wait")
        assert troubles(m) == {}
        page = m.get("/").body.decode()
        assert "<h2>Downloads from origins</h2>" in page
        assert page.count('<a href="/tree/">tree</a>') == 2 and "<th>Last run\n" in page  # in both tables
        assert m.get("/tree/").status == 200
        tree.rm(*(f"f{n}" for n in range(1, 20)))
        assert m.ctl("sync", "run", "tree", "--wait", "--force", check=False).returncode == 75
        waits = soon(lambda: troubles(m))["held", "tree"]
        assert "v2 is waiting for approval" in waits["what"] and "mirrorctl sync approve tree" in waits["todo"]
        m.ctl("sync", "approve", "tree")
        until(lambda: not troubles(m))
    m.ctl("sync", "run", "tree", "--wait", check=False)
    failed = soon(lambda: troubles(m))
    assert failed["sync", "tree"]["what"].startswith("the last sync failed: ") and len(failed) == 1
    m.ctl("sync", "pause", "tree")  # somebody has seen to it
    until(lambda: not troubles(m))


def test_a_daemon_that_stands_still_is_told(m):
    """Checks by cron do not pile up behind it."""
    os.kill(m.child.pid, signal.SIGSTOP)
    try:
        done = m.ctl("status", check=False)
    finally:
        os.kill(m.child.pid, signal.SIGCONT)
    assert done.returncode == 75 and "has not responded for 10 s" in done.stderr
    assert m.ctl("status").returncode == 0


def test_a_refused_reload_is_trouble(m):
    good = m.conf.read_text()
    m.conf.write_text(good + "thredas = 2\n")
    assert m.ctl("config", "reload", check=False).returncode == 78
    seen = troubles(m)["reload", None]
    assert 'did you mean "threads"?' in seen["what"] and "config test" in seen["todo"]
    told, = soon(lambda: json.loads(m.get("/-/status.json").body)["trouble"])
    assert "threads" not in told["what"] and "did you mean" not in m.get("/").body.decode()
    m.conf.write_text(good)
    m.ctl("config", "reload")
    assert troubles(m) == {}


def test_a_store_that_nothing_can_be_evicted_from_is_trouble(mirrord):
    m = mirrord('storage { quota = 10m reserve = 16m }\nrepo "models" { protocol = "hosted" }')
    token = m.token("ci", "publish:models/*")
    assert m.put("/models/me/m/x", os.urandom(9 << 20), token=token).status == 201
    assert troubles(m) == {}
    assert m.put("/models/me/m/y", os.urandom(800 << 10), token=token).status == 201
    assert "nearly full" in soon(lambda: troubles(m))["disk", None]["what"]


def test_a_log_with_titles_and_times_that_programs_read(m):
    m.ctl("sync", "run", "tree", "--wait")
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  \w", m.ctl("sync", "logs", "tree").stdout)
    titles, *lines = m.ctl("--plain", "sync", "logs", "tree").stdout.splitlines()
    assert titles == "TIME\tWHAT" and lines
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\t[^\t]+", line), line
    assert m.ctl("-q", "sync", "logs", "tree").stdout == ""


def test_json_is_there_whatever_happens(m):
    for words in ([], ["cache"], ["nonsense"], ["--bogus"], ["cache", "ls"], ["status", "--deep"], ["repo", "show", "nope"]):
        done = m.ctl("--json", *words, check=False)
        assert json.loads(done.stdout)["error"]["exit"] == done.returncode != 0, words


def test_rot_needs_a_person(mirrord):
    """What the scrubber finds was a line of the log alone; an upload that is damaged is lost. A check that finds nothing ends it."""
    m = mirrord('scrub_every = 1s\nrepo "models" { protocol = "hosted" }')
    token = m.token("me", "publish:models/*")
    assert m.put("/models/me/x/a.bin", b"x" * 100000, token=token).status == 201
    assert m.ctl("status").returncode == 0
    blob = next(f for f in (m.state / "blobs").rglob("*") if f.is_file())
    blob.chmod(0o600)
    with open(blob, "r+b") as f:
        f.write(b"rot")
    m.says("scrub.damaged")
    done = m.ctl("status", check=False)
    assert done.returncode == 1 and done.stdout.startswith("TROUBLE 1 stored file was found damaged and set aside; "), done
    assert "mirrorctl verify" in done.stdout.splitlines()[1]
    kind, = json.loads(m.ctl("--json", "status", check=False).stdout)["trouble"]
    assert kind["kind"] == "damage" and kind["since_unix_s"] > 0 and "found damaged" in m.get("/").body.decode()
    assert m.ctl("verify", check=False).returncode == 65
    assert m.ctl("status", check=False).returncode == 1, "it is still missing"
    assert m.put("/models/me/x/a.bin", b"x" * 100000, token=token).status in (200, 201)
    m.ctl("verify")
    assert m.ctl("status").returncode == 0


def test_plain_tables_have_titles_and_times_that_people_read(m):
    """Without --plain they stay as they are: no titles, unix seconds."""
    m.token("ci", "publish:models/*")
    m.ctl("sync", "run", "tree", "--wait")
    when = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    titles, row = m.ctl("--plain", "token", "ls").stdout.splitlines()
    assert titles == "NAME\tID\tSCOPES\tCREATED\tEXPIRES\tLAST USED"
    assert re.fullmatch(rf"ci\t\S+\tpublish:models/\*\t{when}\t-\t-", row), row
    assert re.fullmatch(r"ci\t\S+\tpublish:models/\*\t\d{10}\t0\t0\n", m.ctl("token", "ls").stdout)
    titles, row = m.ctl("sync", "ls", "--plain").stdout.splitlines()
    assert titles == "REPO\tSTATE\tLAST GOOD\tNEXT\tVERSION\tENTRIES\tSIZE\tWHY"
    assert re.match(rf"tree\tpublished\t{when}\t({when}|-)\tv1\t", row), row
    assert "REPO\tPROTOCOL\tREQUESTS\tSENT\tHITS\tFETCHED\n" in m.ctl("status", "--plain").stdout
    assert on_a_terminal(m, "--plain", "token", "ls") == m.ctl("--plain", "token", "ls").stdout
    assert m.ctl("cache", "pins", "--plain").stdout.count("\n") == 1  # the titles alone
    settled(m, "a")
    assert re.search(rf"\t(fresh|stale) {when}\t", m.ctl("--plain", "cache", "ls", "data").stdout)


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
            s.settimeout(120 * SLOW)
            s.connect(str(m.socket))
            s.sendall(request)
            assert "error" in json.loads(s.makefile().readline())
    with socket.socket(socket.AF_UNIX) as s:  # a request without end is cut off
        s.settimeout(120 * SLOW)
        s.connect(str(m.socket))
        try:
            s.sendall(b"x" * (1 << 20))
            assert s.recv(1) == b""
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert m.ctl("status").returncode == 0


def all_of(master):
    """What was written to a terminal that nobody has any more."""
    seen = b""
    with os.fdopen(master, "rb", buffering=0) as screen:
        try:
            while more := screen.read(65536):
                seen += more
        except OSError:  # Linux says so that the other side is gone
            pass
    return seen


def on_a_terminal(m, *words):
    """What people see: standard output is a terminal."""
    master, slave = pty.openpty()
    done = subprocess.run([BUILD / "mirrorctl", "--socket", m.socket, *words], stdout=slave, stderr=subprocess.PIPE, check=False,
                          timeout=120)
    os.close(slave)
    seen = all_of(master)
    assert done.returncode == 0, done
    return seen.decode().replace("\r\n", "\n")


def test_a_check_counts_files(m):
    """Its bar stands on a terminal, however narrow, and nowhere else."""
    settled(m, "a")
    master, slave = pty.openpty()
    done = subprocess.run([BUILD / "mirrorctl", "--socket", m.socket, "verify"], stdout=subprocess.PIPE, stderr=slave, check=True,
                          timeout=120, env=dict(os.environ, TERM="xterm"))
    os.close(slave)
    drawn = all_of(master).decode()
    assert re.search(r"verify +\d+% .*\d+ / \d+ files  \d+/s", drawn) and done.stdout.startswith(b"1 file")
    assert m.ctl("verify").stderr == ""


def test_people_read_ages_and_that_there_is_none(m):
    m.put("/models/me/m/x", b"one", token=m.token("ci", "publish:models/*"))
    assert on_a_terminal(m, "cache", "pins") == "none\n" and m.ctl("cache", "pins").stdout == ""
    shown = on_a_terminal(m, "snapshot", "show", "models", "me/m")
    assert re.search(r"^created_unix_s  +(now|\d\S* s? ?ago)", shown, re.M), shown
    assert re.search(r"^created_unix_s\t\d{10}$", m.ctl("snapshot", "show", "models", "me/m").stdout, re.M)


def test_the_socket_is_that_of_the_configuration(m, tmp_path):
    """Of one that is named, of no other; --socket and the environment go before it."""
    def run(*words, **env):
        return subprocess.run([BUILD / "mirrorctl", *map(str, words)], capture_output=True, text=True, check=False, timeout=120,
                              env=dict({k: v for k, v in os.environ.items() if k != "MIRRORCTL_SOCKET"}, **env))
    assert run("-c", m.conf, "status").returncode == 0
    (tmp_path / "state.conf").write_text(f'state_dir = "{tmp_path}" listen "127.0.0.1:0" {{ }} repo "a" {{ protocol = "hosted" }}')
    assert f"at {tmp_path}/control.sock: the socket does not exist; start it" in run("-c", tmp_path / "state.conf", "status").stderr
    assert run("-c", tmp_path / "state.conf", "--socket", m.socket, "status").returncode == 0
    assert run("-c", tmp_path / "state.conf", "status", MIRRORCTL_SOCKET=str(m.socket)).returncode == 0
    done = run("-c", tmp_path / "none.conf", "--json", "status")
    assert done.returncode == json.loads(done.stdout)["error"]["exit"] == 78 and "config test" in done.stderr


def test_init_writes_a_configuration_that_passes(tmp_path):
    conf = tmp_path / "mirrord.conf"
    run = [BUILD / "mirrorctl", "init", conf]
    done = subprocess.run(["sh", "-c", 'umask 077; exec "$@"', "sh", *run], check=False, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0
    # It listens on all addresses: what it chose for that is in force, and said with its reason.
    assert re.search(r'^limit "anonymous" \{\n    requests = "500/s"\n    burst = 5000\n    connections = 256\n\}', conf.read_text(), re.M)
    for chosen in ("listen 0.0.0.0:8080", "limit anonymous: 500 requests a second, a burst of 5000, 256 connections", "storage: all free space in /var/lib/mirrord except ", "access log: on standard error"):
        assert chosen in done.stdout, done.stdout
    assert "429" in conf.read_text() and "NAT" in conf.read_text()
    assert re.search(r'^repo "hf" \{\n    protocol = "hf"\n    origin = "http', conf.read_text(), re.M)
    assert "access_log" not in conf.read_text(), "its folder belongs to the unit"
    assert stat.S_IMODE((tmp_path / "conf.d").stat().st_mode) == 0o755, "the file includes it"
    (tmp_path / "conf.d/recipe.conf").write_text('repo "recipe" { protocol = "hosted" }')
    shown = subprocess.run([BUILD / "mirrord", "-T", "-c", conf], check=True, capture_output=True, text=True, timeout=60).stdout
    assert 'repo "models"' in shown and 'repo "recipe"' in shown
    assert subprocess.run(run, check=False, capture_output=True, timeout=120).returncode == 73
    nowhere = subprocess.run([BUILD / "mirrorctl", "init", tmp_path / "no/folder.conf"], check=False, capture_output=True,
                             text=True, timeout=120)
    assert nowhere.returncode == 66 and f"{tmp_path}/no/folder.conf cannot be written: its folder" in nowhere.stderr


def test_init_chooses_a_reserve_that_the_disk_has(tmp_path):
    """The usual 5 % left no room on a disk that is nearly full: nothing could be stored, and nothing said so."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespace may be made here")
    conf = tmp_path / "mirrord.conf"
    for used, reserve in ((970, "3m"), (0, None)):
        done = subprocess.run(["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=1000m tmpfs /var/lib && fallocate -l {used}m /var/lib/x && exec "$@"'
                               if used else 'mount -t tmpfs -o size=1000m tmpfs /var/lib && exec "$@"', "sh", BUILD / "mirrorctl", "init", "--force", conf],
                              check=True, capture_output=True, text=True, timeout=120)
        if reserve:
            assert re.search(r"5 % of the file system, is 50\.0 MiB, and only 30\.0 MiB are free", done.stdout), done.stdout
            assert f'storage {{ reserve = "{reserve}" }}' in conf.read_text()
        else:
            assert "except 5 % of the file system" in done.stdout and "storage {" not in re.sub("#.*", "", conf.read_text())
        subprocess.run([BUILD / "mirrord", "-T", "-c", conf], check=True, capture_output=True, timeout=60)


def test_init_writes_the_access_log_of_the_unit(tmp_path):
    """However its file is named. The log's folder and logrotate's rule are the package's."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespace may be made here")
    for at, words in enumerate((["init"], ["init", "/etc/mirrord/mirrord.conf"])):
        top = tmp_path / str(at)
        (top / "mirrord").mkdir(parents=True)
        done = subprocess.run(["unshare", "--mount", "sh", "-c", f'mount --bind {top} /etc && exec "$@"', "sh", BUILD / "mirrorctl", *words],
                              check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and "access log: /var/log/mirrord/access.log" in done.stdout, done
        assert '\naccess_log = "/var/log/mirrord/access.log"\n' in (top / "mirrord/mirrord.conf").read_text()
        assert (top / "mirrord/conf.d").is_dir()


REST = "Types: deb\nSuites: stable\nComponents: main\n"
APT = {
    "sources.list": "deb\thttp://tabs.example/debian\tstable main\ndeb [arch=amd64 trusted=yes]  http://options.example/one  stable main\n"
                    "# deb http://off.example/a b c\n",
    "sources.list.d/a.sources": f"{REST}URIs: http://first.example/x\n\thttp://second.example/y\n# between\n http://third.example/z\n\n"
                                f"{REST}URIs:\thttp://disabled.example/w\nEnabled: false\n\n{REST}Enabled: yes\nURIs: http://last.example/v",
}


def test_init_reads_sources_as_apt_does(tmp_path):
    """Blanks are tabs, too; a field goes on in the next line; "Enabled: false" is a no."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespace may be made here")
    for name, text in APT.items():
        path = tmp_path / "apt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def there(*command):
        done = subprocess.run(["unshare", "--mount", "sh", "-c", f'mount --bind {tmp_path}/apt /etc/apt && exec "$@"', "sh", *command],
                              check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done
        return done.stdout
    there(BUILD / "mirrorctl", "init", tmp_path / "mirrord.conf")
    found = set(re.findall(r'origin = "http://(\w+)\.example/', (tmp_path / "mirrord.conf").read_text()))
    assert found == {"tabs", "options", "first", "second", "third", "last"}
    if shutil.which("apt-get"):
        assert found == set(re.findall(r"http://(\w+)\.example/", there(
            "apt-get", "update", "--print-uris", "-o", f"Dir::State::lists={tmp_path}/")))


@pytest.mark.parametrize("open_metrics", [False, True])
def test_metrics_text(m, open_metrics):
    """Read back strictly: every sample has its TYPE before it, no name twice, buckets grow, counters end in _total."""
    settled(m, "a")
    accept = {"Accept": "application/openmetrics-text"} if open_metrics else {}
    lines = m.get("/metrics", headers=accept).body.decode().split("\n")
    assert lines.pop() == "" and (not open_metrics or lines.pop() == "# EOF")
    types, seen, buckets, helped = {}, set(), [], set()
    for line in lines:
        if line.startswith("# HELP "):
            helped.add(line.split(" ", 3)[2])
        if line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name in helped, f"{name} has no help, promtool would say"
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
    assert "unsafe" not in policy and "default-src 'none'" in policy
    text = page.body.decode()
    inside = [found for tag in ("style", "script") for found in re.findall(f"<{tag}>(.*?)</{tag}>", text, re.S)]
    hashes = [base64.b64encode(hashlib.sha256(i.encode()).digest()).decode() for i in inside]
    assert sorted(re.findall("'sha256-([^']*)'", policy)) == sorted(hashes) and len(hashes) == 3
    assert f"http://127.0.0.1:{m.port}/data/" in text


def test_strangers_are_kept_out(m):
    assert oct(os.stat(m.socket).st_mode & 0o777) == "0o660"
