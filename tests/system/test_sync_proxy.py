"""An upstream by rsync that is reached through an HTTP proxy, by the native engine and by the program: CONNECT, its user, no_proxy, and proxies
that lie, stop or refuse."""
import contextlib
import json
import os
import socket
import subprocess
import threading

import pytest

from harness.connect_proxy import ConnectProxy
from harness.mirrord import BUILD
from system.test_sync import run
from system.test_sync_rsync import module  # noqa: F401 (a fixture)

CONFIG = 'repo "x" {{ protocol = "generic" origin = "rsync://127.0.0.1:{0}/m/" {1} sync {{ backoff = "100ms" tries = 1 {2} }} }}'
ENGINES = pytest.mark.parametrize("engine", ["", 'engine = "exec-rsync"'], ids=["native", "program"])


def failure(m):
    done = json.loads(m.ctl("--json", "sync", "run", "x", "--wait", check=False).stdout)
    assert done["outcome"] == "failed", done
    return done["why"]


@ENGINES
@pytest.mark.parametrize("together", [False, True])
def test_through_a_proxy(mirrord, module, engine, together):
    """Also when the peer's first words come with the proxy's last."""
    port, tree = module
    (tree / "file").write_bytes(os.urandom(300000))
    with ConnectProxy(together=together) as proxy:
        m = mirrord(CONFIG.format(port, f'proxy = "http://127.0.0.1:{proxy.port}"', engine))
        assert run(m)["outcome"] == "published"
        assert m.get("/x/file").body == (tree / "file").read_bytes()
        assert {target for target, _ in proxy.asked} == {f"127.0.0.1:{port}"}


@ENGINES
def test_a_proxy_that_wants_to_know_who_asks(mirrord, module, engine):
    port, tree = module
    (tree / "file").write_bytes(b"1")
    with ConnectProxy(user="me:p@ss") as proxy:
        m = mirrord(CONFIG.format(port, f'proxy = "127.0.0.1:{proxy.port}/"', engine))
        why = failure(m)
        if engine == "":
            assert "the proxy answers 407" in why and "set user and password" in why, why
        m.config = CONFIG.format(port, f'proxy = "http://me:p%40ss@127.0.0.1:{proxy.port}"', engine)
        m.reload()
        assert run(m)["outcome"] == "published"
        assert m.get("/x/file").body == b"1"


@ENGINES
def test_hosts_that_are_reached_without_it(mirrord, module, engine):
    port, tree = module
    (tree / "file").write_bytes(b"1")
    with ConnectProxy() as proxy:
        m = mirrord(CONFIG.format(port, f'proxy = "http://127.0.0.1:{proxy.port}" no_proxy = "inside.example,127.0.0.0/8"', engine))
        assert run(m)["outcome"] == "published"
        assert proxy.asked == []


@pytest.mark.parametrize("says, words", [
    (b"HTTP/1.1 403 Forbidden\r\n\r\n", "the proxy answers 403 Forbidden"),
    (b"HTTP/1.0 502 Bad\x1b[31m Gateway\r\n\r\n", "the proxy answers 502 Bad"),
    (b"@RSYNCD: 31.0\n\n", "response is not HTTP"),
    (b"HTTP/1.1 twohundred\r\n\r\n", "response is not HTTP"),
    (b"HTTP/1.1 200 OK\r\n", "closed the connection"),
    (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 4000, "is too long"),
    (None, "not established in time"),
])
def test_proxies_as_they_should_not_be(mirrord, module, says, words):
    port, _ = module
    with ConnectProxy(says=says) as proxy:
        limit = 'connect_timeout = "1s"' if says is None else ""
        m = mirrord(CONFIG.format(port, f'proxy = "http://127.0.0.1:{proxy.port}" {limit}', ""))
        why = failure(m)
        assert words in why and "\x1b" not in why, why


@pytest.mark.parametrize("proxy, words", [("socks5://127.0.0.1:1080", "rsync supports only http:// proxies"),
                                          ("https://127.0.0.1:1080", "rsync supports only http:// proxies"),
                                          ("http://me:secret@:99999", "invalid proxy")])
def test_proxies_that_rsync_does_not_go_through(tmp_path, proxy, words):
    conf = tmp_path / "mirrord.conf"
    conf.write_text(f'state_dir = "{tmp_path}/state"\nlisten "127.0.0.1:0" {{ }}\n' + CONFIG.format(873, f'proxy = "{proxy}"', ""))
    done = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True, check=False)
    assert done.returncode == 78 and words in done.stderr and "secret" not in done.stderr, done.stderr


def says(words):
    """A peer that says so, and waits for whoever it is to leave."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):  # it may leave before the last of them
                for i in range(len(words)):
                    client.sendall(words[i:i + 1])
                if words:
                    client.recv(1)
    threading.Thread(target=serve, daemon=True).start()
    return listener


def test_whether_an_upstream_is_there(mirrord, module):
    """Asked for its first word alone, through the proxy; its bare presence is not enough."""
    port, _ = module
    peers = {"ssh": says(b"SSH-2.0-x\r\n"), "web": says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "mute": says(b"")}
    at = {name: peer.getsockname()[1] for name, peer in peers.items()}
    repo = 'repo "{0}" {{ protocol = "generic" origin = "{1}" {2} sync {{ }} }}\n'
    with ConnectProxy() as proxy:
        m = mirrord("".join([repo.format("near", f"rsync://127.0.0.1:{port}/m/", ""),
                             repo.format("far", f"rsync://127.0.0.1:{port}/m/", f'proxy = "http://127.0.0.1:{proxy.port}"'),
                             repo.format("shell", f"ssh://me@127.0.0.1:{at['ssh']}/srv/", ""),
                             repo.format("web", f"rsync://127.0.0.1:{at['web']}/m/", ""),
                             repo.format("mute", f"rsync://127.0.0.1:{at['mute']}/m/", "")]))
        done = m.ctl("--json", "upstream", "check", check=False)
        rows = {r["repo"]: r for r in json.loads(done.stdout)}
        assert done.returncode == 69
        assert {name: r["up"] for name, r in rows.items()} == {"near": True, "far": True, "shell": True, "web": False, "mute": False}
        assert "does not begin with @RSYNCD" in rows["web"]["why"] and "without sending anything" in rows["mute"]["why"]
        assert [target for target, _ in proxy.asked] == [f"127.0.0.1:{port}"]
    for peer in peers.values():
        peer.close()
