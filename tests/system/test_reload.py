"""A reload changes listeners, certificates, the quota and the logs of a running daemon, all or nothing."""
import http.client
import json
import pathlib
import socket
import ssl
import threading

import pytest

from harness.mirrord import SLOW, certificate, free_port, until

MIB = 1 << 20
REPOS = 'repo "data" {{ protocol = "generic" origin = "{0}/" }} repo "models" {{ protocol = "hosted" }}'


@pytest.fixture
def m(mirrord, origin):
    m = mirrord(REPOS.format(origin.url))
    m.origin = origin
    m.repos = m.config
    origin.put("/a", body=b"hello")
    return m


def listen(m, *listeners):
    """These beside the two that the harness needs."""
    m.config = "\n".join([*listeners, m.repos])
    return m.reload()


def ask(port, path="/healthz", tls=None, connection=None):
    c = connection or (http.client.HTTPSConnection if tls else http.client.HTTPConnection)(
        "127.0.0.1", port, timeout=120 * SLOW, **({"context": tls} if tls else {}))
    c.request("GET", path)
    r = c.getresponse()
    return r.status, r.read(), c


def ends(connection):
    """The server has closed it, in order."""
    connection.sock.settimeout(120 * SLOW)
    return connection.sock.recv(1) == b""


def refused(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) != 0


def test_listeners_come_and_go(m):
    port = free_port()
    assert listen(m, f'listen "127.0.0.1:{port}" {{ }}').stdout == "reloaded\n"
    assert ask(port)[0] == 200 and ask(m.port)[0] == 200
    stays, leaves = ask(m.port)[2], ask(port)[2]
    thing = m.origin.put("/slow", size=4 * MIB, hold_at=MIB)
    got = []
    slow = threading.Thread(target=lambda: got.append(ask(port, "/data/slow")[1]))
    slow.start()
    until(lambda: m.metric("mirrord_cache_fills_open"))
    listen(m)
    assert refused(port), "a listener that is gone accepts nobody"
    assert ends(leaves), "an idle connection of it ends"
    thing.go.set()
    slow.join()
    assert got[0] == m.origin.bytes_of("/slow"), "a transfer of it goes on"
    assert ask(m.port, connection=stays)[0] == 200, "those of others stay"
    m.says(f"listen=127.0.0.1:{m.port},127.0.0.1:{m.tls_port}(tls)\n")


def test_a_listener_gets_other_settings(m, tmp_path):
    port = free_port()
    listen(m, f'listen "127.0.0.1:{port}" {{ }}')
    assert ask(port, "/a")[0] == 404
    before = ask(port)[2]
    listen(m, f'listen "127.0.0.1:{port}" {{ root = "data" tcp_congestion = "reno" }}')
    assert ends(before), "who was there under the old settings is sent away"
    assert ask(port, "/a")[1] == b"hello"
    cert, key = certificate(tmp_path)
    listen(m, f'listen "127.0.0.1:{port}" {{ tls_certificate = "{cert}" tls_key = "{key}" }}')
    assert ask(port, tls=ssl.create_default_context(cafile=cert))[0] == 200


def test_a_taken_port_refuses_all_of_it(m):
    new = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        m.config = f'''listen "127.0.0.1:{new}" {{ }} listen "127.0.0.1:{taken.getsockname()[1]}" {{ }}
            {m.repos} repo "more" {{ protocol = "hosted" }}'''
        m.write_config()
        done = m.ctl("config", "reload", check=False)
    assert done.returncode != 0 and "in use" in done.stderr
    assert refused(new) and ask(m.port)[0] == 200 and ask(m.port, "/more/")[0] == 404


def test_a_refused_reload_leaves_certificates_and_logs(m, tmp_path):
    """A pair that was renewed under an unchanged listener waits for a reload that is not refused, and a new log is not made."""
    port, log = free_port(), m.access_log
    cert, key = certificate(tmp_path)
    ours = f'listen "127.0.0.1:{port}" {{ tls_certificate = "{cert}" tls_key = "{key}" }}'
    listen(m, ours)
    first = ssl.create_default_context(cafile=cert)
    certificate(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        m.config = f'{ours} listen "127.0.0.1:{taken.getsockname()[1]}" {{ }} {m.repos}'
        m.access_log = m.folder / "other.log"
        m.write_config()
        done = m.ctl("config", "reload", check=False)
    assert done.returncode != 0 and "in use" in done.stderr
    assert ask(port, tls=first)[0] == 200 and not m.access_log.exists()
    m.access_log = log
    listen(m, ours)
    assert ask(port, tls=ssl.create_default_context(cafile=cert))[0] == 200


def test_certificates_are_read_again(m, tmp_path):
    port = free_port()
    cert, key = certificate(tmp_path)
    listen(m, f'listen "127.0.0.1:{port}" {{ tls_certificate = "{cert}" tls_key = "{key}" }}')
    first = ssl.create_default_context(cafile=cert)
    _, _, old = ask(port, tls=first)
    certificate(tmp_path)
    listen(m, f'listen "127.0.0.1:{port}" {{ tls_certificate = "{cert}" tls_key = "{key}" }}')
    assert ask(port, tls=ssl.create_default_context(cafile=cert))[0] == 200
    with pytest.raises(ssl.SSLError):
        ask(port, tls=first)
    assert ask(port, connection=old)[0] == 200, "a session under way keeps the one that it began with"
    pathlib.Path(cert).write_text("no certificate")
    assert m.ctl("config", "reload", check=False).returncode == 78
    assert ask(port, connection=old)[0] == 200


def test_the_quota_changes_at_once(m):
    assert m.metric("mirrord_cache_quota_bytes") == 8 << 30
    m.repos = f'storage {{ quota = "64m" reserve = "16m" high = "50%" low = "10%" }} {m.repos}'
    assert listen(m).stdout == "reloaded\n"
    assert m.metric("mirrord_cache_quota_bytes") == 64 * MIB
    m.origin.put("/large", size=100 * MIB)
    assert m.get("/data/large").status == 507
    m.repos = m.repos.replace("64m", "1g")
    listen(m)
    assert m.get("/data/large").whole


def test_the_access_log_moves(m):
    m.get("/data/a")
    m.answered("/data/a")
    m.access_log = m.folder / "other.log"
    listen(m)
    m.get("/data/a?second")
    m.answered("/data/a")
    m.access_log = "none"
    listen(m)
    m.get("/data/a?third")
    def entries():
        return [[json.loads(x) for x in (m.folder / name).read_text().splitlines() if "/data/a" in x] for name in ("access.log", "other.log")]
    assert list(map(len, entries())) == [1, 1]
    m.access_log = "/nonexistent/x.log"
    m.write_config()
    assert m.ctl("config", "reload", check=False).returncode == 66


def test_what_needs_a_restart_is_named(m):
    m.repos = f'threads = 1\nhttp {{ idle = 5s }}\nstorage {{ quota = "1g" reserve = "16m" block_cache = "16m" }} {m.repos}'
    assert listen(m).stdout == "reloaded; restart the daemon to apply threads, storage block_cache, http\n"


def test_what_a_repo_left_behind_can_be_removed(m):
    """Its bytes stay when it leaves the configuration: they count, and can go, by name."""
    m.get("/data/a")
    m.settle()
    m.config = 'repo "models" { protocol = "hosted" }'
    m.reload()
    assert m.get("/data/a").status == 404
    assert m.ctl_json("cache", "rm", "--dry-run", "data/a")["would_remove"] == 1
    assert m.ctl_json("cache", "rm", "data/a")["removed"] == 1
    assert "does not begin with the name of a repo" in m.ctl("cache", "rm", "data/a", check=False).stderr
