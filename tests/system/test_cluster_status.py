"""What a mirror of a cluster says about it: mirrorctl cluster, troubles, status.json, metrics. And the checks of the bucket."""
import hashlib
import json
import subprocess

import pytest

from harness.bucket import Bucket, Fault
from harness.mirrord import BUILD, SLOW, until

REPO = 'repo "models" { protocol = "hosted" }'
STEPS = 7


@pytest.fixture
def bucket():
    with Bucket() as b:
        yield b


def section(bucket, folder, more=""):
    return (f'cluster "{bucket.url}" {{ {bucket.access(bucket.keys_file(folder))} '
            f'poll = "50ms" {more} }}')


@pytest.fixture
def node(mirrord, bucket, tmp_path):
    """node() starts a mirror of the cluster."""
    return lambda more="", **kw: mirrord(f"{REPO} {section(bucket, tmp_path, more)}", **kw)


def status(m):
    return json.loads(m.ctl("cluster", "status", "--json", check=False).stdout)


def troubles(m):
    return [t for t in json.loads(m.ctl("status", "--json", check=False).stdout)["trouble"] if t["kind"] == "cluster"]


def changes(m, token, name):
    return m.put(f"/models/me/set/{name}", name.encode(), token=token).status


# --- what there is ---

def test_a_mirror_that_stands_alone(mirrord):
    m = mirrord(REPO)
    assert m.ctl("cluster", "status").stdout == "this mirror stands alone: its configuration has no cluster section\n"
    assert status(m) == {"state": "alone"}
    assert "cluster" not in json.loads(m.get("/-/status.json").body)
    assert not [line for line in m.metrics().splitlines() if line.startswith("mirrord_cluster_")]


def test_a_mirror_of_a_cluster(node, bucket):
    a, b = node(), node()
    token = a.token("ci", "publish:models/*")
    large, small = "x" * 3_000_000, "y" * 1000
    for name in (large, small):
        assert a.put(f"/models/me/set/{len(name)}", name.encode(), token=token).status == 201
    until(lambda: b.get("/models/me/set/3000000").body == large.encode())
    seen = {}

    def settled():
        seen.update({id(m): status(m) for m in (a, b)})
        return seen[id(b)]["fetches"] == 0 and all((s["entries"], s["state"], s["fresh"]) == (3, "up", True) for s in seen.values())
    until(settled)
    for m in (a, b):
        s = seen[id(m)]
        assert s["state"] == "up" and s["why"] == "" and s["fresh"] and s["trouble"] == [] and s["check"] == "passed", s
        assert s["bucket"] == f"{bucket.url} at {bucket.endpoint}/mirror/prod/" and len(s["node"]) == 32
        assert s["entries"] == 3 and s["commits_waiting"] == s["uploads"] == s["requests_failed"] == s["since_unix_s"] == 0, s
        assert m.ctl("cluster", "status", "--plain").stdout.startswith("WHAT\tVALUE\nstate\tup\n")
        assert "cluster: up, 3 entries of the log, confirmed " in m.ctl("status").stdout
        assert m.metric("mirrord_cluster_up") == m.metric("mirrord_cluster_last_check_successful") == 1
        assert m.metric("mirrord_cluster_stopped") == m.metric("mirrord_cluster_commits_waiting") == 0
        assert m.metric("mirrord_cluster_entries_applied") == 3 and m.metric("mirrord_cluster_lag_seconds") < 60 * SLOW
        assert m.metric("mirrord_cluster_bucket_requests_total", method="GET", result="absent") > 0  # the end of the log
        assert m.metric("mirrord_cluster_bucket_requests_total", method="PUT", result="exists") > 0  # the races of the check
        assert m.metric("mirrord_cluster_bucket_requests_total", result="failed") == 0
    assert seen[id(a)]["node"] != seen[id(b)]["node"]
    assert seen[id(a)]["uploaded"] >= 2 and seen[id(a)]["uploaded_bytes"] > 3_000_000 and seen[id(a)]["fetched"] == 0
    assert seen[id(b)]["uploaded"] == 0 and seen[id(b)]["fetched"] == 1 and seen[id(b)]["fetched_bytes"] == 3_000_000
    assert a.metric("mirrord_cluster_content_upload_bytes_total") > 3_000_000 < a.metric("mirrord_cluster_bucket_bytes_total", direction="sent")
    assert b.metric("mirrord_cluster_content_fetches_total") == 1
    assert b.metric("mirrord_cluster_content_fetch_bytes_total") == 3_000_000 < b.metric("mirrord_cluster_bucket_bytes_total", direction="received")
    assert not {"bucket", "node", "why", "check"} & json.loads(a.get("/-/status.json").body)["cluster"].keys()  # everybody may read it


# --- the bucket is away, the log stops ---

@pytest.mark.parametrize("down", ["down", "denied"])
def test_a_bucket_that_cannot_be_used(node, bucket, down):
    """A trouble until it can: on the page, in the terminal, in the exit code, in the metrics."""
    m = node()
    token = m.token("ci", "publish:models/*")
    assert changes(m, token, "before") == 201
    assert m.ctl("cluster", "status").returncode == 0
    bucket.down = down == "down"
    bucket.faults = [Fault("read-only", methods=("GET", "PUT"))] if down == "denied" else []
    until(lambda: troubles(m))
    [t] = troubles(m)
    assert t["what"].startswith("the cluster's bucket cannot be used: uploads and other changes are refused, and ") and " not seen: " in t["what"]
    assert t["since_unix_s"] and ("`authorization`" if down == "denied" else "`endpoint`") in t["todo"], t
    said = m.ctl("cluster", "status", check=False)
    assert said.returncode == 1 and said.stdout.startswith("TROUBLE the cluster's bucket cannot be used: ") and "state\taway\n" in said.stdout, said
    assert m.ctl("status", check=False).returncode == 1
    m.reaches("mirrord_cluster_bucket_requests_total", 3, result="failed" if bucket.down else "denied")
    assert m.metric("mirrord_cluster_up") == 0
    [public] = json.loads(m.get("/-/status.json").body)["trouble"]
    assert public["what"] == t["what"].split(" are not seen")[0] + " are not seen"  # no addresses, no reasons
    assert b"the cluster&#39;s bucket cannot be used" in m.get("/").body or b"the cluster's bucket cannot be used" in m.get("/").body
    assert m.get("/models/me/set/before").body == b"before"
    if down == "denied":  # with a bucket that is away, it takes as long as uploads try
        assert changes(m, token, "between") in (500, 503)
    assert m.ctl("cluster", "check", check=False).returncode == (69 if bucket.down else 77)
    bucket.down, bucket.faults = False, []
    if down == "denied":
        m.ctl("cluster", "check")  # a refusal is a result: the next check replaces it
    until(lambda: not troubles(m))
    assert status(m)["state"] == "up" and status(m)["check"] == "passed" and m.ctl("status").returncode == 0 and m.metric("mirrord_cluster_up") == 1
    until(lambda: changes(m, token, "after") == 201)


def test_rights_that_are_too_old(node, bucket):
    m = node('stale_after = "1s"')
    bucket.down = True
    until(lambda: troubles(m) and "changes and requests with a token are refused" in troubles(m)[0]["what"])
    assert not status(m)["fresh"]


def test_a_change_in_doubt(node, bucket):
    m = node()
    token = m.token("ci", "publish:models/*")
    bucket.faults = [Fault("cut", keys="log/", methods=("PUT",)), Fault("cut", keys="log/", methods=("GET",))]
    assert changes(m, token, "one") == 503
    assert status(m)["state"] == "in doubt"
    bucket.faults = []
    until(lambda: status(m)["state"] == "up")


def test_a_log_that_has_stopped(node, bucket):
    m = node()
    token = m.token("ci", "publish:models/*")
    assert changes(m, token, "one") == 201
    [*_, (last, _)] = bucket.under("log/")
    bucket.objects[last[:-20] + f"{int(last[-20:]) + 1:020}"] = (b"no entry", 0)
    until(lambda: status(m)["state"] == "stopped")
    [t] = troubles(m)
    assert t["what"].startswith("this mirror has stopped following the cluster's log") and "docs/cluster.md" in t["todo"]
    assert m.ctl("cluster", "status", check=False).returncode == 1
    assert m.metric("mirrord_cluster_stopped") == 1 and m.metric("mirrord_cluster_up") == 0
    assert m.get("/models/me/set/one").body == b"one"


# --- checks ---

def test_a_check(node, bucket):
    m = node()
    said = m.ctl("cluster", "check").stdout.splitlines()
    assert len(said) == STEPS + 1 and all(line.startswith("ok ") for line in said[:-1]), said
    assert said[-1] == f"{bucket.url} at {bucket.endpoint}/mirror/prod/: the bucket keeps its promises"
    got = m.ctl_json("cluster", "check")
    assert got["ok"] and len(got["steps"]) == STEPS and got["bucket"].startswith(bucket.url) and "error" not in got
    assert got["steps"][0].keys() == {"step", "ok", "took_ms", "why"}
    assert not bucket.under("probe/")


def test_a_check_that_fails(node, bucket):
    """Content is checked wherever it is read, so this is reported and refuses nothing."""
    m = node()
    token = m.token("ci", "publish:models/*")
    bucket.versioned = True
    done = m.ctl("cluster", "check", check=False)
    assert done.returncode == 69 and done.stdout.splitlines()[-1].startswith("FAILED  it keeps no old versions"), done
    assert "nothing would ever be freed" in done.stderr and done.stderr.count("\n") == 1
    got = m.ctl("cluster", "check", "--json", check=False)
    assert got.returncode == 69 and json.loads(got.stdout)["error"]["code"] == "E_UNSUPPORTED" and len(json.loads(got.stdout)["steps"]) == STEPS
    [t] = troubles(m)
    assert t["what"].startswith("the last check of the cluster's bucket failed: ") and "old versions" in t["what"] and t["since_unix_s"], t
    assert status(m)["state"] == "up" and m.metric("mirrord_cluster_last_check_successful") == 0
    assert changes(m, token, "one") == 201
    bucket.versioned = False
    m.ctl("cluster", "check")
    assert not troubles(m) and m.metric("mirrord_cluster_last_check_successful") == 1


def test_a_bucket_that_lets_keys_be_created_twice(node, bucket):
    """Two mirrors could write one entry of the log: nothing is changed until a check by hand passes."""
    m = node('check = "200ms"')
    token = m.token("ci", "publish:models/*")
    assert changes(m, token, "one") == 201
    bucket.atomic = False
    m.says("cluster.broken")  # found by the clock
    [t] = troubles(m)
    assert t["what"].startswith("the cluster's bucket does not keep the promise that exactly one request creates a key, so all changes are refused") and "cluster check" in t["todo"], t
    until(lambda: changes(m, token, "two") == 503)
    got = m.put("/models/me/set/two", b"two", token=token)
    assert b"`mirrorctl cluster check` passes" in got.body and got.body.strip().endswith(b'("If-None-Match: *" is not atomic)'), got
    assert status(m)["state"] == "broken" and m.metric("mirrord_cluster_stopped") == 1 and m.metric("mirrord_cluster_up") == 1
    assert m.get("/models/me/set/one").body == b"one"
    done = m.ctl("cluster", "check", check=False)
    assert done.returncode == 69 and "FAILED  of simultaneous creations one succeeds" in done.stdout
    bucket.atomic = True
    checked = status(m)["checked_unix_s"]
    applied = m.metric("mirrord_cluster_bucket_requests_total", method="GET")
    until(lambda: m.metric("mirrord_cluster_bucket_requests_total", method="GET") > applied + 20)  # a second of polls
    assert status(m)["checked_unix_s"] == checked and changes(m, token, "two") == 503  # the clock does not end it
    m.ctl("cluster", "check")
    m.says("cluster.repaired")
    assert changes(m, token, "two") == 201 and not troubles(m) and status(m)["state"] == "up"
    assert m.log().count("cluster.broken") == 1


def test_a_bucket_that_lets_a_few_keys_be_created_twice(node, bucket):
    """One of a hundred conditions is ignored: a check at the start misses that often, one by hand never."""
    m = node()
    bucket.faults = [Fault("ignore", "probe/.*race", ("PUT",), 0.01)]
    done = m.ctl("cluster", "check", check=False)
    assert done.returncode == 69 and "FAILED  of simultaneous creations one succeeds" in done.stdout, done
    assert status(m)["state"] == "broken"
    bucket.faults = []
    m.ctl("cluster", "check")
    assert status(m)["state"] == "up" and not bucket.under("probe/")


def test_checks_by_the_clock(node, bucket):
    a, b = node('check = "100ms"'), node('check = "0s"')
    bucket.versioned = True
    until(lambda: troubles(a))
    bucket.versioned = False
    until(lambda: not troubles(a))
    a.stop()

    def some_polls():
        polls = b.metric("mirrord_cluster_bucket_requests_total", method="GET")
        until(lambda: b.metric("mirrord_cluster_bucket_requests_total", method="GET") > polls + 20)
    some_polls()  # what the one that was stopped had sent has come
    checks = bucket.counts["PUT", "probe"]
    some_polls()
    assert bucket.counts["PUT", "probe"] == checks and not troubles(b)


def test_one_check_at_a_time(node, bucket):
    m = node()
    bucket.faults = [Fault("slow", keys="probe/", delay=0.3)]
    first = subprocess.Popen([BUILD / "mirrorctl", "--socket", m.socket, "cluster", "check"], stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline().startswith("ok ")  # as it is made
    done = m.ctl("cluster", "check", check=False)
    assert done.returncode == 75 and "is being checked" in done.stderr, done
    bucket.faults = []
    assert "keeps its promises" in first.communicate(timeout=120 * SLOW)[0] and first.returncode == 0


def test_a_stop_does_not_wait_for_a_check(node, bucket):
    m = node()
    fault = Fault("slow", keys="probe/", delay=3600)
    bucket.faults = [fault]
    check = subprocess.Popen([BUILD / "mirrorctl", "--socket", m.socket, "cluster", "check"], stderr=subprocess.PIPE)
    until(lambda: fault.seen)
    m.stop()
    check.communicate(timeout=120 * SLOW)
    assert check.returncode == 75


# --- checks without a daemon ---

def run(*words):
    return subprocess.run([BUILD / words[0], *map(str, words[1:])], capture_output=True, text=True, check=False, timeout=120 * SLOW)


@pytest.fixture
def conf(bucket, tmp_path):
    path = tmp_path / "new.conf"
    path.write_text(f'state_dir = "{tmp_path}/state"\nlisten "127.0.0.1:0" {{ }}\n{REPO}\n{section(bucket, tmp_path)}\n')
    return path


@pytest.mark.parametrize("program", [("mirrord", "--check-cluster"), ("mirrorctl", "cluster", "check")])
def test_before_a_mirror_joins(conf, bucket, program):
    def check(*more): return run(program[0], "-c", conf, *program[1:], *more)
    done = check()
    said = [line for line in done.stdout.splitlines() if not line.startswith("no daemon is running at ")]
    assert done.returncode == 0 and len(said) == STEPS + 1 and said[-1].endswith(": the bucket keeps its promises"), done
    got = json.loads(check("--json").stdout)
    assert got["ok"] and len(got["steps"]) == STEPS and got["bucket"].startswith(bucket.url)
    bucket.atomic = False
    done = check()
    assert done.returncode == 69 and "FAILED  of simultaneous creations one succeeds" in done.stdout and "not atomic" in done.stderr, done
    done = check("--json")
    assert done.returncode == 69 and not json.loads(done.stdout)["ok"] and json.loads(done.stdout)["error"]["code"] == "E_UNSUPPORTED", done
    bucket.down = True
    done = check()
    assert done.returncode == 69 and "FAILED  it can be read" in done.stdout, done
    assert not (conf.parent / "state").exists()


def test_the_daemon_of_the_file_is_asked(node, bucket):
    """As for every other verb: only a check by the daemon ends its state `broken`."""
    m = node()
    bucket.atomic = False
    assert run("mirrorctl", "-c", m.conf, "cluster", "check").returncode == 69
    assert status(m)["state"] == "broken"
    bucket.atomic = True
    done = run("mirrorctl", "-c", m.conf, "cluster", "check")
    assert done.returncode == 0 and "no daemon" not in done.stdout, done
    assert status(m)["state"] == "up"


def test_the_file_decides_when_it_is_given(conf, bucket, mirrord):
    """A daemon that stands alone runs already: the section is checked before the restart that joins."""
    m = mirrord(REPO)
    assert run("mirrorctl", "--socket", m.socket, "-c", conf, "cluster", "check").returncode == 0
    done = run("mirrorctl", "-c", m.conf, "cluster", "check")
    assert done.returncode == 78 and "there is no cluster section" in done.stderr, done


def test_a_check_without_any_daemon(conf, tmp_path):
    done = run("mirrorctl", "--socket", tmp_path / "none", "cluster", "check")
    assert "no daemon is running at" in done.stdout and done.returncode in (69, 74, 78, 66), done  # there is no /etc/mirrord/mirrord.conf here


# --- a damaged entry ---

def next_entry(bucket):
    [*_, (last, _)] = bucket.under("log/")
    return last[:-20] + f"{int(last[-20:]) + 1:020}", int(last[-20:]) + 1


@pytest.mark.parametrize("daemon", [True, False])
def test_an_entry_that_is_declared_void(node, bucket, daemon):
    """In two steps: what is lost is seen first. Without a daemon, too, as none starts."""
    m, other = node(), node()
    token = m.token("ci", "publish:models/*")
    assert changes(m, token, "one") == 201
    until(lambda: status(other)["entries"] == status(m)["entries"])
    key, number = next_entry(bucket)
    bucket.objects[key] = (b"no entry", 0)
    until(lambda: status(m)["state"] == status(other)["state"] == "stopped")
    if not daemon:
        m.stop()
    def void(*more): return run("mirrorctl", "--socket", m.socket, *(() if daemon else ("-c", m.conf)), "cluster", "void", *more)
    looked = void(number)
    digest = hashlib.sha256(b"no entry").hexdigest()
    assert looked.returncode == 0 and f"entry {number} is damaged: 8 bytes with SHA-256 {digest}" in looked.stdout, looked
    assert void(number, "--digest", "0" * 64).returncode == 75 and not bucket.under("void/")
    assert void(number - 1).returncode == 73 and void(number + 1).returncode == 66  # sound; none
    assert json.loads(void(number, "--json").stdout)["sha256"] == digest
    done = void(number, "--digest", digest)
    assert done.returncode == 0 and f"entry {number} is void" in done.stdout, done
    for x in (m, other):
        x.stop()
        x.start()
    until(lambda: status(m)["state"] == status(other)["state"] == "up")
    assert changes(m, token, "two") == 201
    until(lambda: other.get("/models/me/set/two").body == b"two")
    assert void(number, "--digest", digest).returncode == 73
    late = node()
    assert late.get("/models/me/set/one").body == b"one" and late.get("/models/me/set/two").body == b"two"


def test_an_entry_that_a_mirror_has(node, bucket):
    """It must not be declared void: that mirror would have other rows than the others."""
    m = node()
    token = m.token("ci", "publish:models/*")
    assert changes(m, token, "one") == 201
    [*_, (last, _)] = bucket.under("log/")
    bucket.objects[last] = (b"no entry", 0)
    done = m.ctl("cluster", "void", str(int(last[-20:])), "--digest", hashlib.sha256(b"no entry").hexdigest(), check=False)
    assert done.returncode == 73 and "has applied entry" in done.stderr and not bucket.under("void/"), done


# --- a rolling upgrade ---

def sealed(head):
    """Of a later version: the checksum comes last in every one."""
    return head + hashlib.sha256(head).digest()


@pytest.mark.parametrize("later", ["entry", "table"])
def test_an_entry_of_a_later_version(node, bucket, later):
    """A mirror that does not know the format stops applying. It never passes over such an entry, and it serves what it has."""
    m = node()
    token = m.token("ci", "publish:models/*")
    assert changes(m, token, "one") == 201
    [*_, (_, last)] = bucket.under("log/")
    key, number = next_entry(bucket)
    step = bytes([1, 250]) + (1).to_bytes(2, "big") + b"k" + (1).to_bytes(4, "big") + b"v"
    batch = (1).to_bytes(4, "big") + len(step).to_bytes(4, "big") + step
    head = (b"mrdlog02" if later == "entry" else b"mrdlog01") + number.to_bytes(8, "big") + last[-32:] + bytes(16) + bytes(8) + (1).to_bytes(8, "big")
    bucket.objects[key] = (sealed(head + batch), 0)
    until(lambda: status(m)["state"] == "stopped")
    entries = status(m)["entries"]
    assert "upgrade" in status(m)["why"] or "later" in status(m)["why"], status(m)
    assert changes(m, token, "two") == 503 or changes(m, token, "two") == 500
    assert m.get("/models/me/set/one").body == b"one" and status(m)["entries"] == entries
    assert m.ctl("cluster", "void", str(number), check=False).returncode in (69, 73)  # it is not damaged
    assert next_entry(bucket) == (key[:-20] + f"{number + 1:020}", number + 1)  # and wrote nothing after it


def test_a_bucket_of_a_later_version(mirrord, bucket, tmp_path):
    bucket.objects["prod/cluster.json"] = (b'{"cluster": "1", "format": 2}', 0)
    done = run("mirrord", "-c", config_of(bucket, tmp_path))
    assert done.returncode == 69 and "has format 2; this version of mirrord reads format 1: upgrade" in done.stderr, done


def config_of(bucket, folder):
    path = folder / "later.conf"
    path.write_text(f'state_dir = "{folder}/state"\nlisten "127.0.0.1:0" {{ }}\n{REPO}\n{section(bucket, folder)}\n')
    return path
