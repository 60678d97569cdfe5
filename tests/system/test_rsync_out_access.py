"""Who may take what by rsync: passwords, scopes, limits; and what is said of it afterwards."""
import os
import socket
import subprocess
import threading

import pytest

from harness.mirrord import BUILD, until
from harness.rsync_out import Out, contents


class Locked(Out):
    def __init__(self, start, rsync, folder, more="", before=""):
        self.folder, self.secrets = folder, folder / "rsync.users"
        self.users("alice:open sesame", "mole:dig", "part:of it", "# bob:x", "nobody:here")
        super().__init__(start, rsync, f'users = "{self.secrets}" {more}', before)
        self.m.token("alice", "read:secret/*")
        self.m.token("mole", "read:models/*")
        self.m.token("part", "read:secret/me/tree/*")
        self.put("a", b"for alice", repo="secret/me/tree")
        self.put("b", b"for nobody else", repo="secret/me/other")
        self.put("c", b"for all")

    def users(self, *lines):
        self.secrets.touch(0o600)
        self.secrets.write_text("\n".join(lines) + "\n")

    def take(self, user, password, path, to, *options):
        file = self.folder / f"password-{password}"
        if not file.exists():
            file.touch(0o600)
            file.write_text(password + "\n")
        who = f"{user}@" if user else ""
        return self.run("-r", f"--password-file={file}", *options, f"rsync://{who}127.0.0.1:{self.port}{path}",
                        f"{to}/", check=False)


@pytest.fixture
def locked(mirrord, client, tmp_path):
    return Locked(mirrord, client("rsync"), tmp_path)


@pytest.mark.parametrize("options", [(), ("--protocol=30",), ("--protocol=31", "-z")])
def test_a_password_opens(locked, tmp_path, options):
    run = locked.take("alice", "open sesame", "/secret/", tmp_path / "dst", *options)
    assert run.returncode == 0, run.stderr
    assert contents(tmp_path / "dst") == {"me/tree/a": b"for alice", "me/other/b": b"for nobody else"}


def greet(out, line, module="secret"):
    s = socket.create_connection(("127.0.0.1", out.port), 120)
    s.sendall(f"{line}\n{module}\n".encode())
    got = b""
    while got.count(b"\n") < 2:
        got += s.recv(1000)
    return s, got.split(b"AUTHREQD ")[1].split(b"\n")[0]


@pytest.mark.parametrize("digest", ["sha512", "sha256", "sha1", "md5"])
def test_any_digest_that_we_name(locked, digest):
    import base64
    import hashlib
    s, challenge = greet(locked, "@RSYNCD: 31.0 " + digest)
    sum_ = base64.b64encode(hashlib.new(digest, b"open sesame" + challenge).digest()).rstrip(b"=")
    s.sendall(b"alice " + sum_ + b"\n")
    assert s.recv(100) == b"@RSYNCD: OK\n"
    again, other = greet(locked, "@RSYNCD: 31.0 " + digest)
    assert other != challenge
    again.sendall(b"alice " + sum_ + b"\n")
    assert b"auth failed" in again.recv(100)


def test_what_stays_shut(locked, tmp_path):
    said = set()
    for user, password in (("alice", "wrong"), ("who", "open sesame"), ("bob", "x"), ("# bob", "x"), ("nobody", "here")):
        run = locked.take(user, password, "/secret/", tmp_path / "dst")
        assert run.returncode != 0
        said.add(run.stdout + run.stderr)
    assert len(said) == 1 and "auth failed on module secret" in said.pop()
    # a good password, a token that has no right there, or only on a part of it
    for user, password, path in (("mole", "dig", "/secret/"), ("part", "of it", "/secret/"), ("part", "of it", "/secret/me/o*"),
                                 ("part", "of it", "/secret/me/tree/../other/"), ("part", "of it", "/secret/me/tree*")):
        run = locked.take(user, password, path, tmp_path / "dst")
        assert run.returncode != 0 and not (tmp_path / "dst/me").exists(), (path, run.stdout, run.stderr)
    assert contents(tmp_path / "dst") == {}
    for path, want in (("/secret/me/tree/", {"a"}), ("/secret/me/tree", {"tree/a"}), ("/secret/me/tree/a", {"a"})):
        run = locked.take("part", "of it", path, tmp_path / path.replace("/", "-"))
        assert run.returncode == 0 and set(contents(tmp_path / path.replace("/", "-"))) == want, run.stderr
    # whoever is refused elsewhere still gets what is for all, without being asked
    assert locked.take(None, "-", "/models/", tmp_path / "all").returncode == 0
    assert "secret" not in locked.run(locked.url + "/").stdout


def test_changes_count_at_the_next_session(locked, tmp_path):
    assert locked.take("alice", "open sesame", "/secret/", tmp_path / "a").returncode == 0
    locked.users("alice:another")
    assert "auth failed" in locked.take("alice", "open sesame", "/secret/", tmp_path / "b").stderr
    assert locked.take("alice", "another", "/secret/", tmp_path / "b").returncode == 0
    locked.m.ctl("token", "revoke", "alice")
    assert "auth failed" in locked.take("alice", "another", "/secret/", tmp_path / "c").stderr
    locked.m.token("alice", "read:secret/*")
    os.chmod(locked.secrets, 0o644)
    assert "auth failed" in locked.take("alice", "another", "/secret/", tmp_path / "c").stderr
    locked.m.says("chmod")
    os.chmod(locked.secrets, 0o640)
    assert locked.take("alice", "another", "/secret/", tmp_path / "c").returncode == 0
    assert "another" not in locked.m.log() and "another" not in locked.m.access_log.read_text()


def test_a_file_that_others_may_read_is_refused_at_the_start(tmp_path):
    secrets, conf = tmp_path / "users", tmp_path / "conf"
    secrets.write_text("a:b\n")
    conf.write_text(f'state_dir = "{tmp_path}/state"\nlisten "127.0.0.1:0" {{ }}\n'
                    f'rsync "127.0.0.1:0" {{ users = "{secrets}" }}\n')
    for mode, code in ((0o644, 78), (0o602, 78), (0o640, 0)):
        secrets.chmod(mode)
        run = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True)
        assert run.returncode == code and (code == 0) == ("chmod o-rw" not in run.stderr), run.stderr


def test_without_users_it_is_unknown(mirrord, client, tmp_path):
    out = Out(mirrord, client("rsync"))
    out.put("a", b"x", repo="secret/me/tree")
    run = out.run("-r", f"rsync://alice@127.0.0.1:{out.port}/secret/", f"{tmp_path}/dst/", check=False)
    assert run.returncode != 0 and "Unknown module" in run.stdout + run.stderr


def test_limits_hold_here_too(mirrord, client, tmp_path):
    out = Locked(mirrord, client("rsync"), tmp_path, before='limit "anonymous" { requests = "0.001/s" burst = 3 connections = 2 }\n'
                 'limit "alice" { requests = "0.001/s" burst = 5 }')
    for i in range(2):  # Locked itself put three files, with a token that has no limit of its own
        assert out.take("alice", "open sesame", "/secret/", tmp_path / f"a{i}").returncode == 0
    codes = [out.take(None, "-", "/models/", tmp_path / f"b{i}") for i in range(4)]
    assert [c.returncode == 0 for c in codes] == [True, True, True, False]
    assert "max connections (3) reached" in codes[3].stdout + codes[3].stderr
    assert out.take("alice", "open sesame", "/secret/", tmp_path / "c").returncode == 0
    until(lambda: out.m.metric("mirrord_rsync_sessions_open") == 0)  # a session counts on for a moment after its client's end
    held = [socket.create_connection(("127.0.0.1", out.port)) for _ in range(2)]
    for s in held:
        assert b"@ERROR" not in s.recv(100)
    run = out.take("alice", "open sesame", "/secret/", tmp_path / "d")
    assert "max connections (2) reached" in run.stdout + run.stderr
    for s in held:
        s.close()
    until(lambda: out.take("alice", "open sesame", "/secret/", tmp_path / "e").returncode == 0)  # they are counted no more


@pytest.mark.parametrize("before, option, user", [
    ('limit "anonymous" { rate = "1m/s" }', (), None), ("", ("--bwlimit=1000",), None), ('limit "alice" { rate = "1m/s" }', (), "alice")])
def test_rates_hold(mirrord, client, tmp_path, before, option, user):
    """What keeps to a rate has waited for it: three megabytes go beyond the first second."""
    out = Locked(mirrord, client("rsync"), tmp_path, before=before)
    out.put("large", os.urandom(4_000_000), repo="secret/me/tree" if user else "models/me/tree")
    run = out.take(user, "open sesame", "/secret/me/tree/large" if user else "/models/me/tree/large", tmp_path / "dst", *option)
    assert run.returncode == 0, run
    out.m.reaches("mirrord_rsync_sessions_total", 1)
    assert out.m.metric("mirrord_rsync_waits_total") > 0
    assert len(contents(tmp_path / "dst")["large"]) == 4_000_000


def test_what_is_said_of_sessions(locked, tmp_path):
    locked.take("alice", "open sesame", "/secret/", tmp_path / "a")
    locked.take("alice", "wrong", "/secret/", tmp_path / "b")
    locked.take(None, "-", "/models/", tmp_path / "c", "-c")
    locked.take(None, "-", "/none/", tmp_path / "d")
    locked.run(locked.url + "/")
    locked.m.reaches('mirrord_rsync_sessions_total', 5)
    lines = locked.m.answered("RSYNC", 5, method="RSYNC")
    seen = [(x["principal"], x["path"], x["status"], x["outcome"], x["files"]) for x in lines]
    assert sorted(seen) == [("", "/", 200, "served", 0), ("", "/models", 501, "refused", 0), ("", "/none", 404, "absent", 0),
                            ("", "/secret", 403, "denied", 0), ("alice", "/secret", 200, "served", 2)]
    assert all(x["proto"] == "rsync" and x["client"] == "127.0.0.1" for x in lines)
    metric = locked.m.metric
    until(lambda: metric("mirrord_rsync_sessions_open") == 0)
    assert {o: metric("mirrord_rsync_sessions_total", outcome=o) for o in ("served", "denied", "refused", "absent", "busy")} == \
        {"served": 2, "denied": 1, "refused": 1, "absent": 1, "busy": 0}
    assert metric("mirrord_rsync_files_total") == 2
    assert metric("mirrord_rsync_file_bytes_total") == len(b"for alice" + b"for nobody else") < metric("mirrord_rsync_sent_bytes_total")
    assert "rsync: 0 clients, 2 served" in locked.m.ctl("status").stdout


def test_guesses_and_sessions_at_once(locked, tmp_path):
    results = []

    def one(i):
        results.append(locked.take("alice" if i % 2 else "eve", "open sesame", "/secret/", tmp_path / f"t{i}").returncode == 0)
    locked.take("alice", "open sesame", "/secret/", tmp_path / "first")  # writes the password down
    threads = [threading.Thread(target=one, args=(i,)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sum(results) == 6
