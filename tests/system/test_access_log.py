"""The access log under load: each answer has one whole line, whatever is rotated, reloaded or stopped meanwhile."""
import concurrent.futures
import json
import signal

from harness.mirrord import until

THREADS = "threads = 2\n"
EACH, CLIENTS = 400, 4


def lines_of(*paths):
    """Entries of all these files that are about the repo; each line is whole."""
    text = "".join(p.read_text() for p in paths)
    assert text.endswith("\n")
    entries = [json.loads(line) for line in text.splitlines()]
    return [e for e in entries if e["path"].startswith("/data/")]


def ask(m, wire="h1"):
    """EACH hits over several connections, so that both loops write."""
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        for got in clients.map(lambda _: m.get_all(["/data/a"] * (EACH // CLIENTS), wire), range(CLIENTS)):
            assert {status for status, _ in got} == {200}


def test_a_stop_loses_no_line(mirrord, origin, wire):
    origin.put("/a", size=1000)
    m = mirrord(f'{THREADS}repo "data" {{ protocol = "generic" origin = "{origin.url}/" }}')
    ask(m, wire)
    m.stop()
    entries = lines_of(m.access_log)
    assert len(entries) == EACH and len({e["id"] for e in entries}) == EACH
    assert {(e["status"], e["bytes"], e["complete"], e["repo"], e["path"]) for e in entries} == {(200, 1000, True, "data", "/data/a")}


def test_rotation_and_reload_lose_no_line(mirrord, origin):
    origin.put("/a", size=1000)
    m = mirrord(f'{THREADS}repo "data" {{ protocol = "generic" origin = "{origin.url}/" }}')
    first, second, third = m.access_log, m.folder / "access.log.1", m.folder / "other.log"
    ask(m)
    first.rename(second)
    m.child.send_signal(signal.SIGUSR1)
    until(first.exists)  # a signal is heard when its thread comes to it: not after the reload below
    ask(m)
    m.access_log = third
    m.reload()
    ask(m)
    assert m.metric("mirrord_access_log_dropped_total") == 0
    m.stop()
    assert len(lines_of(first, second, third)) == 3 * EACH
    assert len(lines_of(third)) >= EACH


def test_lines_on_stderr_stay_whole_beside_events(mirrord, origin):
    """stderr is the log's and the access log's: neither breaks a line of the other."""
    origin.put("/a", size=1000)
    m = mirrord(f'{THREADS}log_level = "debug"\nrepo "data" {{ protocol = "generic" origin = "{origin.url}/" }}')
    m.access_log = "stderr"
    m.reload()
    ask(m)
    for _ in range(5):
        m.reload()
    ask(m)
    log = m.log_path
    m.stop()
    lines = log.read_text().splitlines()
    assert sum('"path":"/data/a"' in line for line in lines) == 2 * EACH
    for line in lines:
        if '"path":"/data/a"' in line:
            assert json.loads(line)["status"] == 200
