"""SIGTERM while a sync, or a client, waits for an origin that says nothing, does not let itself be connected to, or whose name no
server looks up: mirrord ends within its drain, whatever waits."""
import pathlib
import socket
import subprocess
import threading

import pytest

from harness.mirrord import BUILD, SLOW, until

LONG = 'connect_timeout = "10m" stall = "1h"'  # longer than SIGTERM may take
URLS = ("http://{}:{}/", "https://{}:{}/", "rsync://{}:{}/m/", "rsyncs://{}:{}/m/")


def waits_for(port, state):
    """A connection of somebody to that port is in that state of the kernel's."""
    return any(f[2] == f"0100007F:{port:04X}" and f[3] == state
               for f in (line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]))


@pytest.fixture
def silent():
    with socket.create_server(("127.0.0.1", 0), backlog=64) as s:
        yield s.getsockname()[1]


@pytest.fixture
def full():
    """A port whose backlog is full: whoever connects hears nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as s:
        port, taken = s.getsockname()[1], []
        while not waits_for(port, "02"):  # SYN_SENT
            c = socket.socket()
            c.setblocking(False)
            c.connect_ex(("127.0.0.1", port))
            taken.append(c)
        yield port
        for c in taken:
            c.close()


class Names:
    """A mirrord for which no name below hangs.test is ever looked up."""

    def __init__(self, m):
        self.m, self.count = m, m.folder / "names"

    def asked(self):
        return self.count.exists() and self.count.stat().st_size > 0


@pytest.fixture
def names(mirrord):
    def start(config):
        m = mirrord("repo \"y\" { protocol = \"hosted\" }")
        m.stop()
        m.config = config
        n = Names(m)
        m.env = {"LD_PRELOAD": str(BUILD / "fake" / "hanging_names.so"), "HANGING_NAMES": str(n.count)}
        m.start()
        return n
    return start


def synced(url, more=""):
    return f'drain = "1s" repo "x" {{ protocol = "generic" origin = "{url}" {LONG} sync {{ tries = 1 {more} }} }}'


def begins(m):
    m.ctl("sync", "run", "x")
    until(lambda: m.ctl_json("sync", "ls")[0]["running"])


@pytest.mark.parametrize("url", URLS)
def test_an_origin_that_says_nothing(mirrord, silent, url):
    m = mirrord(synced(url.format("127.0.0.1", silent)))
    begins(m)
    until(lambda: waits_for(silent, "01"))
    m.stop()
    assert "outcome=stopped" in m.log()


@pytest.mark.parametrize("url", URLS)
def test_an_origin_that_is_not_reached(mirrord, full, url):
    m = mirrord(synced(url.format("127.0.0.1", full)))
    begins(m)
    m.stop()
    assert "outcome=stopped" in m.log()


@pytest.mark.skipif(SLOW > 1, reason="a sanitizer's runtime must come first")
@pytest.mark.parametrize("url", URLS)
def test_a_name_that_is_not_found(names, url):
    n = names(synced(url.format("origin.hangs.test", 8000)))
    begins(n.m)
    until(n.asked)
    n.m.stop()
    assert "outcome=stopped" in n.m.log()


@pytest.mark.skipif(SLOW > 1, reason="a sanitizer's runtime must come first")
@pytest.mark.parametrize("url", ["http://{}:{}/", "rsync://{}:{}/m/"])
def test_the_name_of_a_proxy(names, url):
    url = url.format("files.example", 8000)
    n = names(synced(url).replace(LONG, LONG + ' proxy = "http://proxy.hangs.test:3128"'))
    begins(n.m)
    until(n.asked)
    n.m.stop()
    assert "outcome=stopped" in n.m.log()


@pytest.mark.parametrize("engine", ["exec-rsync"])
def test_a_program_that_hears_nothing(mirrord, silent, client, engine):
    client("rsync")
    m = mirrord(synced(f"rsync://127.0.0.1:{silent}/m/", f'engine = "{engine}"'))
    begins(m)
    until(lambda: waits_for(silent, "01"))
    m.stop()
    assert "outcome=stopped" in m.log()


@pytest.mark.skipif(SLOW > 1, reason="a sanitizer's runtime must come first")
def test_a_client_whose_origins_name_is_not_found(names):
    n = names(f'drain = "1s" repo "x" {{ protocol = "generic" origin = "http://origin.hangs.test:8000/" {LONG} }}')
    asking = threading.Thread(target=lambda: n.m.get("/x/f"))
    asking.start()
    until(n.asked)
    n.m.stop()
    asking.join()


@pytest.mark.parametrize("leaves", [False, True])
def test_who_waits_for_a_run_that_rests(mirrord, leaves):
    """A run has nothing to tell between two tries: whoever waits for it is heard to leave, and holds up no SIGTERM."""
    m = mirrord('drain = "1s" repo "x" { protocol = "generic" origin = "rsync://127.0.0.1:1/m/" sync { tries = 2 backoff = "1h" } }')
    waits = subprocess.Popen([BUILD / "mirrorctl", "-c", m.conf, "sync", "run", "x", "--wait"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    try:
        until(lambda: m.ctl_json("sync", "ls")[0]["last"].get("next_try_unix_s"))
        if leaves:
            waits.kill()
            until(lambda: "control-client" not in threads_of(m))
        m.stop()
    finally:
        waits.kill()
        waits.wait()


def threads_of(m):
    return [p.read_text().strip() for p in pathlib.Path(f"/proc/{m.child.pid}/task").glob("*/comm")]
