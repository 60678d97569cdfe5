"""Operating it: configuration that is wrong, reload, drain, health, metrics, the page, the control tool."""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading

import pytest

from harness.mirrord import BUILD, SLOW, free_port, until
from harness.origin import Origin

MIB = 1 << 20


@pytest.fixture
def data(mirrord, origin):
    m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}
                    repo "models" {{ protocol = "hosted" }}""")
    m.origin = origin
    return m


def check(tmp_path, text):
    conf = tmp_path / "mirrord.conf"
    conf.write_text(text)
    return subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True, check=False)


GOOD = 'state_dir = "/tmp/x"\nlisten "127.0.0.1:0" { }\nrepo "a" { protocol = "hosted" }\n'


@pytest.mark.parametrize(("listen", "code", "why"), [("127.0.0.1:873", 77, "so low a port needs CAP_NET_BIND_SERVICE"),
                                                     ("192.0.2.1:8080", 74, "this machine does not have that address")])
def test_an_address_that_cannot_be_had(tmp_path, client, listen, code, why):
    start = pathlib.Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if code == 77 and start.exists() and int(start.read_text()) <= 873:
        pytest.skip("here anybody may listen on low ports")
    conf = tmp_path / "mirrord.conf"
    conf.write_text(f'state_dir = "{tmp_path}/state"\nlisten "{listen}" {{ }}\nrepo "a" {{ protocol = "hosted" }}\n')
    drop = ["--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service"] if os.geteuid() == 0 else ["--no-new-privs"]
    done = subprocess.run([client("setpriv"), *drop, BUILD / "mirrord", "-c", conf], capture_output=True, text=True, check=False,
                          timeout=60 * SLOW)
    assert done.returncode == code and f"cannot listen on {listen}: {why}" in done.stderr, done


def test_a_good_configuration(tmp_path):
    assert check(tmp_path, GOOD).returncode == 0


@pytest.mark.parametrize("line,names", [
    ("quotaa = 1", "mirrord.conf:4"), ('repo "b" { protocol = "pipy" origin = "https://x.example/" }', "pipy"),
    ('repo "a" { protocol = "hosted" }', "a"), ("acces_log = none", "access_log"), ("storage { quota = 12parsecs }", "quota"),
    ('repo "b" { protocol = "generic" origin = "https://x.example/" rule \'(\' { class = immutable } }', "mirrord.conf:4"),
    ('state_dir = "/tmp/y"', "state_dir"), ('listen "nowhere" { }', "nowhere"), ("storage {", "mirrord.conf"),
    ('ca = "${NO_SUCH_VARIABLE_HERE}"', "NO_SUCH_VARIABLE_HERE")])
def test_a_wrong_configuration_says_where(tmp_path, line, names):
    done = check(tmp_path, GOOD + line + "\n")
    assert done.returncode == 78, done.stderr
    assert names in done.stderr, done.stderr


def test_effective_settings_are_a_configuration(tmp_path):
    conf = tmp_path / "mirrord.conf"
    conf.write_text(GOOD)
    printed = subprocess.run([BUILD / "mirrord", "-T", "-c", conf], capture_output=True, text=True, check=True).stdout
    assert check(tmp_path, printed).returncode == 0, printed


def test_reload_keeps_the_old_when_the_new_is_wrong(data):
    data.origin.put("/a", size=10)
    good = data.config
    data.config = good + '\nrepo "more" { protocol = "hosted" }'
    data.reload()
    assert data.get("/more/").status == 200
    data.config = good + "\nnonsense = 1"
    data.write_config()
    assert data.ctl("config", "reload", check=False).returncode != 0
    data.child.send_signal(signal.SIGHUP)
    data.says("reload.refused", 2)
    assert data.get("/more/").status == 200 and data.get("/data/a").status == 200


def counters(m):
    """Every sample of a counter: what must never go back while the process lives."""
    text = m.get("/metrics").body.decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    samples = re.findall(r"^(([a-z_]+)(?:\{[^}]*\})?) (\S+)$", text, re.M)
    return {sample: float(value) for sample, name, value in samples if kinds.get(name) == "counter"}


def test_counters_do_not_go_back_on_a_reload(data):
    data.origin.put("/a", size=1000)
    data.get("/data/a")
    data.get("/data/none")
    data.settle()
    before = counters(data)
    assert before['mirrord_upstream_requests_total{repo="data"}'] == 2
    kept = data.config
    for config in (kept.replace("protocol = \"generic\"", "protocol = \"generic\" connections = 3"), "", kept):
        data.config = config
        data.reload()
        after = counters(data)
        assert not [s for s, v in before.items() if after.get(s, -1) < v]
        before = after
    assert data.ctl_json("status")["upstream_requests"] == 2


@contextlib.contextmanager
def running(conf, **pipes):
    """A bare mirrord, which does not outlive what is asked of it: Popen would wait for it, for ever."""
    with subprocess.Popen([BUILD / "mirrord", "-c", conf], **pipes) as child:
        try:
            yield child
        finally:
            child.kill()


def test_ready_names_the_addresses(data, tmp_path):
    data.says(f"listen=127.0.0.1:{data.port},127.0.0.1:{data.tls_port}(tls)")
    conf = tmp_path / "free.conf"
    conf.write_text(f'state_dir = "{tmp_path}/state"\nlisten "127.0.0.1:0" {{ }}\nrepo "a" {{ protocol = "hosted" }}\n')
    with running(conf, stderr=subprocess.PIPE, text=True) as child:
        port = next(m[1] for m in (re.search(r"daemon.ready .* listen=127\.0\.0\.1:(\d+)\n", line)
                                   for line in child.stderr) if m)
        done = subprocess.run(["curl", "-qsS", f"http://127.0.0.1:{port}/healthz"], capture_output=True, check=True)
        assert done.stdout == b"ok\n"
        child.terminate()
        assert child.wait(120) == 0


RULES = "rule '^once/' { class = immutable } rule '.' { ttl = 1h sie = 7d }"


def of(origin, more=""):
    return f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" {more} {RULES} }}'


def test_what_another_origin_had_is_not_served(mirrord, origin):
    """The same paths, other bytes: at once after a reload, also while a fill is under way, and after a restart."""
    with Origin() as other:
        m = mirrord(of(origin))
        for path in ("/once/a", "/often/a", "/once/slow"):
            origin.put(path, body=b"old" + b"x" * (4 * MIB if "slow" in path else 0), hold_at=MIB if "slow" in path else -1)
            other.put(path, body=b"new")
        assert [m.get(f"/data{p}").body for p in ("/once/a", "/often/a")] == [b"old", b"old"]
        m.settle()
        slow = threading.Thread(target=lambda: m.get("/data/once/slow"))
        slow.start()
        until(lambda: origin.stats("/once/slow").bytes)
        m.config = of(other)
        said = m.reload()
        assert "moved_from" in said.stderr and origin.url in said.stderr
        m.says("repo.other_origin")
        assert {r["state"] for r in m.ctl_json("cache", "ls", "data")} == {"other-origin"}
        assert [m.get(f"/data{p}").body for p in ("/once/slow", "/once/a", "/often/a")] == [b"new"] * 3
        origin.stats("/once/slow").go.set()
        slow.join()
        m.settle()
        assert [m.get(f"/data{p}").body for p in ("/once/slow", "/once/a", "/often/a")] == [b"new"] * 3
        assert other.stats("/often/a").conditional == 0 and m.reload().stderr == ""
        m.stop()
        m.config = of(origin)
        other.close()
        m.start()
        m.says("repo.other_origin", 2)
        origin.put("/once/a", status=500)
        assert m.get("/data/once/a").status == 500, "the other origin's bytes are no stand-in"


def test_the_same_files_elsewhere_stay(mirrord, origin):
    with Origin() as other:
        m = mirrord(of(origin))
        origin.put("/once/a", body=b"old")
        origin.put("/often/a", body=b"old")
        assert [m.get(f"/data/{p}").body for p in ("once/a", "often/a")] == [b"old", b"old"]
        m.settle()
        m.config = of(other, f'moved_from = {{"{origin.url}"}}')
        assert m.reload().stderr == ""
        m.says("repo.moved")
        assert [m.get(f"/data/{p}").body for p in ("once/a", "often/a")] == [b"old", b"old"]
        assert m.upstream_requests() == 2


def test_a_log_that_nobody_reads_holds_nothing_up(origin, tmp_path):
    """stderr is a pipe that is full, as when the journal hangs: requests are answered, and it stops when it is told to."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    port = free_port()
    conf = tmp_path / "mirrord.conf"
    (tmp_path / "state").mkdir()  # that it was made is no part of the first write, which the pipe takes whole or not at all
    conf.write_text(f'''state_dir = "{tmp_path}/state" access_log = none storage {{ reserve = "1m" }}
        listen "127.0.0.1:{port}" {{ }} repo "data" {{ protocol = "generic" origin = "{origin.url}/" }}''')
    with running(conf, stderr=write) as child:
        os.close(write)
        url = f"http://127.0.0.1:{port}/data/"
        subprocess.run(["curl", "-qsS", "--retry", "50", "--retry-connrefused", "--retry-delay", "1", url + "none"],
                       stdout=subprocess.DEVNULL, check=True)
        for i in range(120):  # each says fetch.done
            origin.put(f"/{i}", size=10)
        got = subprocess.run(["curl", "-qsS", "--max-time", str(240 * SLOW), url + "[0-119]"], capture_output=True, check=True)
        assert len(got.stdout) == 1200
        child.terminate()
        assert child.wait(120 * SLOW) == 0
    with os.fdopen(read) as log:
        lines = log.read().splitlines()
    assert "daemon.ready" in lines[0] and all(re.match(r"20\d\d-", line) for line in lines[:-1])


def test_sigterm_lets_transfers_end(data):
    data.origin.put("/slow", size=8 * MIB, rate=4 * MIB)
    got = []
    client = threading.Thread(target=lambda: got.append(data.get("/data/slow")))
    client.start()
    until(lambda: data.origin.stats("/slow").bytes)
    data.stop()
    client.join()
    assert got[0].whole and got[0].body == data.origin.bytes_of("/slow")


def test_a_second_daemon_is_refused(data):
    conf = data.folder / "second.conf"
    conf.write_text(data.conf.read_text().replace(f":{data.port}", ":0").replace(f":{data.tls_port}", f":{free_port()}")
                    .replace("control.sock", "other.sock"))
    done = subprocess.run([BUILD / "mirrord", "-c", conf], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0 and str(data.state) in done.stderr


def test_health_metrics_and_status(data, wire):
    data.origin.put("/a", size=1000)
    data.get("/data/a", wire)
    data.get("/data/a", wire)
    assert data.get("/healthz", wire).status == data.get("/readyz", wire).status == 200
    text = data.get("/metrics", wire).body.decode()
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) \w+ .*|\w+(\{[^}]*\})? [-+.\deEInfNa]+", line), line
    assert data.metric("mirrord_upstream_requests_total") == 1 and data.metric("mirrord_upstream_bytes_total") >= 1000
    assert "data" in json.dumps(json.loads(data.get("/-/status.json", wire).body))


def test_the_page(data, wire):
    page = data.get("/", wire, headers={"Accept": "text/html"})
    text = page.body.decode()
    assert page.status == 200 and page["content-type"].startswith("text/html") and "data" in text
    assert not re.search(r'(src|href)="(https?:)?//(?!127\.0\.0\.1)', text), "the page loads from another host"


def test_the_page_is_whole_without_a_script(data):
    """What is under way, how far, and that something is wrong: as it comes from the server."""
    page = lambda: data.get("/").body.decode().split("<script>")[0]  # noqa: E731
    assert '<p id="state">serving</p>' in page() and '<p id="fills-none">' in page()
    assert '<section id="trouble" class="trouble" hidden>' in page()
    data.origin.put("/slow", size=64 * MIB, hold_at=MIB)
    client = threading.Thread(target=lambda: data.get("/data/slow"))
    client.start()
    until(lambda: re.search(rf'<li>data/slow<span> [\d.]+ [KM]?i?B of 64.0 MiB, .*/s, 1 reader</span><progress max="{64 * MIB}" '
                            r'value="\d+">', page()))
    assert '<p id="fills-none" hidden>' in page()
    data.conf.write_text("nonsense = 1\n")
    assert data.ctl("config", "reload", check=False).returncode == 78
    assert '<p id="state" class="bad">serving, 1 thing needs attention</p>' in page()
    assert '<section id="trouble" class="trouble">' in page() and "<li>the last reload was refused" in page()
    data.kill()
    client.join()


def test_what_is_sent_counts_while_it_is_sent(data):
    """A large file takes minutes: its rate is seen in that time, not after it. What rsync's clients take counts, too."""
    data.origin.put("/slow", size=64 * MIB, hold_at=8 * MIB)
    client = threading.Thread(target=lambda: data.get("/data/slow"))
    client.start()
    until(lambda: json.loads(data.get("/-/status.json").body)["bytes_out"] > 7 * MIB)
    shown = re.search(r'<b id="out">([\d.]+) MiB</b>', data.get("/").body.decode())
    assert shown and 7 <= float(shown[1]) < 64, "what is asked meanwhile is sent, too"
    data.kill()
    client.join()


def test_pages_have_an_icon_and_a_place_in_an_index(data, wire):
    """An icon without a request of its own; /-/ leads to each page that the daemon has by itself."""
    index = data.get("/-/", wire)
    text = index.body.decode()
    assert index.status == 200 and index["content-type"].startswith("text/html") and "script-src" not in index["content-security-policy"]
    for page in (text, data.get("/", wire).body.decode()):
        assert "<link rel=\"icon\" href=\"data:image/svg+xml," in page
    links = re.findall('href="(/[^"]*)"', text)
    assert {"/", "/-/status.json", "/-/tunasync.json", "/metrics", "/healthz", "/readyz", "/-/repos/models/"} <= set(links)
    for link in links:
        assert data.get(link, wire).status == 200, link


def test_commands_are_folded_and_one_client_is_chosen(data):
    """The page does not grow by a screen for each repo, whatever its clients."""
    text = data.get("/").body.decode()
    assert re.findall(r'<details name="use"><summary>(\w+) ', text) == ["data", "models"]
    for name in ("data", "models"):
        chosen = re.findall(rf'<input type="radio" name="use-{name}" id="(use-{name}-\d+)"( checked)?>', text)
        assert [mark for _, mark in chosen] == [" checked"] + [""] * (len(chosen) - 1) and len(chosen) > 1
        assert [id for id, _ in chosen] == re.findall(rf'<label for="(use-{name}-\d+)">', text)


def test_control_tool(data):
    data.origin.put("/a", size=3 * MIB)
    data.get("/data/a")
    assert "data" in data.ctl("repo", "ls").stdout and "models" in data.ctl("repo", "ls").stdout
    data.settle()
    assert data.ctl("cache", "ls", "data").stdout.startswith("data/a\t")
    assert data.ctl("status").stdout
    data.ctl("cache", "rm", "data/a")
    data.get("/data/a")
    assert data.origin.stats("/a").requests >= 2
    assert data.ctl("cache", "rm", "nosuch/a", check=False).returncode != 0
    assert data.ctl("no", "such", check=False).returncode == 64


def test_who_asks_is_not_left_for_a_stop_in_between(data):
    """A daemon that was stopped (a debugger, a machine that slept) goes on with those who were connected."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(120)
        s.connect(str(data.socket))
        for _ in range(3):
            s.sendall(b'{"verb":"status"}\n')
            answer = s.recv(1 << 16)
            assert answer, "it hung up"
            while not answer.endswith(b"\n"):
                answer += s.recv(1 << 16)
            data.child.send_signal(signal.SIGSTOP)
            until(lambda: re.search(r"^State:\tT", pathlib.Path(f"/proc/{data.child.pid}/status").read_text(), re.M))
            data.child.send_signal(signal.SIGCONT)


def test_a_start_sweeps_parts_that_no_row_describes(data):
    data.stop()
    orphan = data.state / "partial" / "00000000000000ff"
    orphan.write_bytes(b"of a fill that a kill ended before its first row")
    data.start()
    assert not orphan.exists()


def test_a_start_after_a_kill_says_so(data):
    assert "store.unclean" not in data.log()
    data.kill()
    data.start()
    data.says("store.unclean")


def test_verify_removes_orphans_and_finds_damage(data):
    data.origin.put("/a", size=3 * MIB)
    data.get("/data/a")
    data.settle()
    orphan = data.state / "blobs" / "ab" / "cd" / ("abcd" + "0" * 60)
    orphan.parent.mkdir(parents=True, exist_ok=True)
    orphan.write_bytes(b"nobody's")
    assert data.ctl("verify").returncode == 0 and not orphan.exists()
    blob = next(f for f in (data.state / "blobs").rglob("*") if f.is_file())
    blob.chmod(0o600)
    with open(blob, "r+b") as f:
        f.seek(MIB)
        f.write(b"rot")
    assert data.ctl("verify", "--deep", check=False).returncode == 65
    data.ctl("verify", "--deep", "--repair", check=False)
    assert data.get("/data/a").body == data.origin.bytes_of("/a")


def test_rot_is_found_before_somebody_asks(mirrord, origin):
    m = mirrord(f"""scrub_every = 1s\nrepo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}""")
    origin.put("/a", size=MIB)
    m.get("/data/a")
    m.settle()
    blob = next(f for f in (m.state / "blobs").rglob("*") if f.is_file())
    blob.chmod(0o600)
    with open(blob, "r+b") as f:
        f.write(b"rot")
    m.says("scrub.damaged blobs=1")
    assert m.get("/data/a").body == origin.bytes_of("/a") and origin.stats("/a").requests == 2


def test_a_listener_with_a_root(mirrord, origin):
    port = free_port()
    m = mirrord(f"""listen "127.0.0.1:{port}" {{ root = "data" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}""")
    origin.put("/x/a", size=100)
    at_root = subprocess.run(["curl", "-qsS", f"http://127.0.0.1:{port}/x/a"], capture_output=True, check=True).stdout
    assert at_root == m.get("/data/x/a").body == origin.bytes_of("/x/a")


def test_access_log_has_a_line_for_each_answer(data):
    data.origin.put("/a", size=100)
    for path in ("/data/a", "/data/a", "/data/none"):
        data.get(path)
    data.stop()
    lines = [json.loads(line) for line in (data.folder / "access.log").read_text().splitlines()]
    ours = [entry for entry in lines if "/data/" in json.dumps(entry)]
    assert len(ours) == 3
