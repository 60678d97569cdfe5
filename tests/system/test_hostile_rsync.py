"""rsync clients that want all of the server for themselves: rules that cost much, seats, readers that hardly read."""
import os
import re
import socket
import struct
import threading

from harness.mirrord import until
from harness.rsync_out import Out, contents

ARGUMENTS = b"--server\0--sender\0-re.LfxCIvu\0.\0models/me/tree/\0\0" + b"\x03md5"
FILES = 150
# No name has a "b": each rule is tried in all ways, some 70,000 steps for each name, and 1,000 rules for each file.
RULE = "- " + "*a" * 515 + "*b*a"
RULES = 1000
LOOK = 1 << 18  # budget.h: after so many steps a session looks whether anybody waits for it


def rules(count=RULES):
    text = b"".join(struct.pack("<i", len(RULE)) + RULE.encode() for _ in range(count)) + struct.pack("<i", 0)
    return b"".join(struct.pack("<I", 7 << 24 | len(text[i:i + 65536])) + text[i:i + 65536] for i in range(0, len(text), 65536))


def begin(out, source="127.0.0.1", room=None):
    s = socket.socket()
    if room:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    s.settimeout(240)
    s.bind((source, 0))
    s.connect(("127.0.0.1", out.port))
    s.sendall(b"@RSYNCD: 31.0 md5\nmodels\n")
    got = b""
    while b"OK\n" not in got:
        piece = s.recv(1000)
        if not piece or b"@ERROR" in got + piece:
            s.close()
            return (got + piece).decode()
        got += piece
    return s


def working(out):
    """Has a session's thread begun to work? What it has done so far is more than a greeting costs."""
    tasks = f"/proc/{out.m.child.pid}/task"
    for task in os.listdir(tasks):
        try:
            with open(f"{tasks}/{task}/stat") as f:
                name, rest = f.read().rsplit(")", 1)
        except OSError:
            continue
        if name.endswith("(rsync") and int(rest.split()[11]) > 20:
            return True
    return False


def crowded(mirrord, client, more=""):
    out = Out(mirrord, client("rsync"), more)
    for i in range(FILES):
        out.put(f"{'a' * 240}{i}a", b"x")
    return out


def steps(out):
    return out.m.metric("mirrord_rsync_steps_total")


def test_a_session_has_a_budget(mirrord, client, tmp_path):
    out = crowded(mirrord, client, "max_steps = 20000000")
    file = tmp_path / "rules"
    file.write_text((RULE + "\n") * RULES)
    run = out.run("-r", f"--filter=merge {file}", out.url + "/models/me/tree/", f"{tmp_path}/dst/", check=False)
    assert run.returncode == 4, run.stderr
    assert "cost more than 20000000 steps; use fewer or simpler rules" in run.stderr + run.stdout
    until(lambda: out.m.metric("mirrord_rsync_sessions_total", outcome="refused") == 1)
    assert 20_000_000 < steps(out) < 21_000_000
    # What clients ask for else costs next to nothing of it.
    was = steps(out)
    out.run("-r", "--exclude=*.iso", "--exclude=**/i18n/**", out.url + "/models/me/tree/", f"{tmp_path}/dst/")
    assert len(contents(tmp_path / "dst")) == FILES
    until(lambda: out.m.metric("mirrord_rsync_sessions_total", outcome="served") == 1)
    assert steps(out) - was < 300 * FILES


def test_names_have_the_same_budget(mirrord, client, tmp_path):
    out = Out(mirrord, client("rsync"), "max_steps = 200000")
    out.put("d/a", b"x")
    names = tmp_path / "names"
    names.write_text("d/a\n" * 1000)
    run = out.run("-r", f"--files-from={names}", out.url + "/models/me/tree/", f"{tmp_path}/dst/", check=False)
    assert run.returncode == 4 and "cost more than 200000 steps" in run.stderr + run.stdout


def test_work_ends_with_its_client(mirrord, client):
    out = crowded(mirrord, client, 'max_steps = 0 stall = "1h"')
    s, sent = begin(out), rules()
    s.sendall(ARGUMENTS + sent[:-1])
    got = b""
    while len(got) < 28:  # all that it says before the list: nothing is left unread, so the close stands behind the rules
        got += s.recv(28 - len(got))
    s.send(sent[-1:], socket.MSG_MORE)  # it leaves together with our end: nothing is done between the two, however slow we are
    s.close()
    until(lambda: out.m.metric("mirrord_rsync_sessions_total", outcome="broken") == 1)
    assert steps(out) < 50 * LOOK, "it went on without its client"


def test_work_ends_with_the_server(mirrord, client):
    out = crowded(mirrord, client, 'max_steps = 0 stall = "1h"')
    s = begin(out)
    s.sendall(ARGUMENTS + rules())
    until(lambda: working(out))
    out.m.stop()
    assert "the server is shutting down" in out.m.log()


def test_others_are_served_meanwhile(mirrord, client, tmp_path):
    out = crowded(mirrord, client, 'connections = 8 max_steps = 0 stall = "1h"')
    held = [begin(out) for _ in range(2)]
    for s in held:
        s.sendall(ARGUMENTS + rules())
    until(lambda: working(out))
    assert "max connections (2) reached" in begin(out)
    out.run("-r", "--address=127.0.0.2", out.url + "/models/me/tree/", f"{tmp_path}/dst/")
    assert len(contents(tmp_path / "dst")) == FILES
    assert out.m.get(f"/models/me/tree/{'a' * 240}0a").status == 200
    assert out.m.metric("mirrord_rsync_sessions_open") >= 2, "they had been served first"


def test_one_address_leaves_seats(mirrord, client, tmp_path):
    out = Out(mirrord, client("rsync"), "connections = 64")
    out.put("a", b"a")
    held = []
    while not isinstance(s := begin(out), str):
        held.append(s)
        assert len(held) < 64
    assert len(held) == 16 and "max connections (16) reached" in s
    for host in range(2, 5):  # there is room for the share of three more
        held += [begin(out, f"127.0.0.{host}") for _ in range(16)]
    assert all(not isinstance(s, str) for s in held)
    assert "max connections (64) reached" in begin(out, "127.0.0.9")
    held.pop(0).close()
    until(lambda: not isinstance(begin(out), str))


def test_users_behind_one_address_have_seats_each(mirrord, client, tmp_path):
    secrets, word = tmp_path / "users", tmp_path / "word"
    for file, text in ((secrets, "alice:sesame\nbob:sesame\n"), (word, "sesame\n")):
        file.touch(0o600)
        file.write_text(text)
    out = Out(mirrord, client("rsync"), f'users = "{secrets}" client_connections = 2 stall = "1h"')
    for user in ("alice", "bob"):
        out.m.token(user, "read:secret/*")
    out.put("big", os.urandom(1 << 20), repo="secret/me/tree")

    def take(user, to, *options):
        return out.run("-r", f"--password-file={word}", *options, f"rsync://{user}@127.0.0.1:{out.port}/secret/me/tree/", f"{to}/", check=False)

    runs = []
    slow = [threading.Thread(target=lambda i=i: runs.append(take("alice", tmp_path / f"slow{i}", "--bwlimit=50"))) for i in range(2)]
    for i, t in enumerate(slow):
        t.start()
        until(lambda: list((tmp_path / f"slow{i}").glob(".big.*")))  # it is known as alice
    third = take("alice", tmp_path / "third")
    assert third.returncode != 0 and "max connections (2) reached" in third.stderr + third.stdout
    assert take("bob", tmp_path / "bob").returncode == 0
    assert all(t.is_alive() for t in slow)
    for t in slow:
        t.join()
    assert [run.returncode for run in runs] == [0, 0]


def test_a_reader_that_hardly_reads(mirrord, client):
    out = Out(mirrord, client("rsync"), 'stall = "1h" min_read_rate = "64m/s" min_read_time = "1s"')
    out.put("big", bytes(64 << 20))
    s = begin(out, room=4096)
    s.sendall(ARGUMENTS + struct.pack("<Ii", 7 << 24 | 4, 0))
    request = b"\x02" + struct.pack("<H", 0x8000) + struct.pack("<iiii", 0, 0, 2, 0)  # entry 1, all of it
    s.sendall(struct.pack("<I", 7 << 24 | len(request)) + request)
    try:
        while s.recv(1000):
            if out.m.metric("mirrord_rsync_sessions_open") == 0:
                break
    except ConnectionError:
        pass
    until(lambda: out.m.metric("mirrord_rsync_sessions_total", outcome="broken") == 1)
    assert re.search(r"the client reads less than \d+ bytes per second", out.m.log())
