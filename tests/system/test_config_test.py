"""`mirrorctl config test` and `mirrord -t` judge as the daemon's user: what they let pass, a start and a reload take. And what is
valid but looks like a slip is said, and refuses nothing."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

import pytest

from harness.mirrord import BUILD, SLOW, Mirrord, certificate, free_port

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root reads what the daemon's user may not")


def run(*words):
    return subprocess.run([BUILD / words[0], *map(str, words[1:])], capture_output=True, text=True, check=False, timeout=120 * SLOW)


@pytest.fixture
def folder():
    """One that other users may enter, which pytest's own is not."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="mirrord-"))
    path.chmod(0o755)
    (path / "state").mkdir()
    os.chown(path / "state", NOBODY, NOBODY)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def with_key(folder):
    """A configuration whose TLS key root alone can read; its daemon is nobody's."""
    cert, key = certificate(folder)
    key.chmod(0o600)
    conf = folder / "test.conf"
    conf.write_text(f'state_dir = "{folder}/state"\nlisten "127.0.0.1:{free_port()}" {{ tls_certificate = "{cert}" tls_key = "{key}" }}\n'
                    'repo "models" { protocol = "hosted" }\n')
    return conf, key


def refused(done, conf, key, line=2):
    """Says what file, for which user, and what to do."""
    assert done.returncode == 78, done
    assert f'{conf}:{line}: tls_key = "{key}": the user nobody cannot read the file (not allowed); run chgrp nogroup and chmod 640 on it' \
        in done.stderr, done.stderr


@as_root
@pytest.mark.parametrize("program", [("mirrord", "-t"), ("mirrorctl", "config", "test")])
def test_a_key_that_the_daemon_cannot_read(with_key, program):
    """No daemon runs: its user is the one who owns state_dir."""
    conf, key = with_key
    def test(): return run(program[0], "-c", conf, *program[1:])
    refused(test(), conf, key)
    os.chown(key, 0, NOBODY)
    key.chmod(0o640)
    assert test().returncode == 0
    key.parent.chmod(0o700)
    done = test()
    assert done.returncode == 0 and "tested as root" in done.stderr, "a draft where that user cannot go is judged, and this is said"
    key.parent.chmod(0o755)
    inner = key.parent / "private"
    inner.mkdir(mode=0o700)
    key.rename(inner / "key.pem")
    conf.write_text(conf.read_text().replace(str(key), f"{inner}/key.pem"))
    done = test()
    assert done.returncode == 78 and f"the user nobody cannot enter the folder {inner}"[:60] in done.stderr, done


@as_root
@pytest.mark.parametrize("setting,names", [
    ('repo "a" { protocol = "generic" origin = "https://a.example/" authorization = "file:secret" }', 'authorization = "'),
    ('repo "a" { protocol = "generic" origin = "https://a.example/" ca_file = "secret" }', 'ca_file = "'),
    ('rsync "127.0.0.1:0" { users = "secret" }\nrepo "a" { protocol = "hosted" }', 'users = "'),
    ('include("secret")\nrepo "a" { protocol = "hosted" }', "secret: "),
    ('include("closed/*.conf")\nrepo "a" { protocol = "hosted" }', "closed to the user nobody")])
def test_any_file_that_the_daemon_cannot_read(folder, setting, names):
    if "ca_file" in setting:
        certificate(folder)[0].rename(folder / "secret")
    else:
        (folder / "secret").write_text("# me:secret\n" if "include" in setting else "secret\n")
    (folder / "secret").chmod(0o600)
    (folder / "closed").mkdir(mode=0o700)
    (folder / "closed/x.conf").write_text("")
    conf = folder / "test.conf"
    conf.write_text(f'state_dir = "{folder}/state"\nlisten "127.0.0.1:0" {{ }}\n{setting}\n')
    done = run("mirrord", "-t", "-c", conf)
    assert done.returncode == 78 and names in done.stderr and "the user nobody" in done.stderr, done
    for path, mode in ((folder / "secret", 0o640), (folder / "closed", 0o750)):
        os.chown(path, 0, NOBODY)
        path.chmod(mode)
    done = run("mirrord", "-t", "-c", conf)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("held", ["", "no certificate\n", "a key"])
def test_authorities_in_a_file_that_has_none(folder, held):
    """Every request to the origin would fail, long after."""
    cert, key = certificate(folder)
    (folder / "ca.pem").write_text(pathlib.Path(key).read_text() if held == "a key" else held)
    conf = folder / "test.conf"
    for name, works in (("ca.pem", False), (pathlib.Path(cert).name, True)):
        conf.write_text(f'state_dir = "{folder}/state"\nlisten "127.0.0.1:0" {{ }}\nrepo "a" {{\n  protocol = "generic" origin = "https://a.example/"\n'
                        f'  ca_file = "{folder}/{name}"\n}}\n')
        for done in (run("mirrord", "-t", "-c", conf), run("mirrorctl", "-c", conf, "config", "test")):
            assert (done.returncode == 0) == works, done
            if not works:
                assert done.returncode == 78 and f'{conf}:5: ca_file = "{folder}/ca.pem": the file' in done.stderr, done
                assert "the file contains no certificate; put the certificates of the authorities there, as PEM" in done.stderr, done


@as_root
def test_a_log_that_the_daemon_cannot_write(folder):
    """No daemon runs: a start would end there. The unit may still make a folder that is not there."""
    conf, logs = folder / "test.conf", folder / "logs"
    logs.mkdir(mode=0o755)
    conf.write_text(f'state_dir = "{folder}/state"\naccess_log = "{logs}/access.log"\nlisten "127.0.0.1:0" {{ }}\nrepo "a" {{ protocol = "hosted" }}\n')
    done = run("mirrorctl", "-c", conf, "config", "test")
    assert done.returncode == 78 and f'{conf}: access_log = "{logs}/access.log": the user nobody cannot write it (not allowed)' in done.stderr, done
    os.chown(logs, NOBODY, NOBODY)
    done = run("mirrorctl", "-c", conf, "config", "test")
    assert (done.returncode, done.stderr) == (0, "") and not list(logs.iterdir()), done
    logs.rmdir()
    done = run("mirrorctl", "-c", conf, "config", "test")
    assert done.returncode == 0 and f'warning: access_log = "{logs}/access.log": its folder does not exist' in done.stderr, done


@as_root
def test_the_daemon_that_runs_is_asked(folder):
    """What it says is what its reload does, before and after the file is right."""
    m = Mirrord('repo "models" { protocol = "hosted" }', folder=folder, command=("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"))
    cert, key = certificate(folder)
    for path in (folder, m.folder / "state"):
        os.chown(path, NOBODY, NOBODY)
    m.start()
    try:
        key.chmod(0o600)
        m.config += f'\nlisten "127.0.0.1:{free_port()}" {{ tls_certificate = "{cert}" tls_key = "{key}" }}'
        m.write_config()
        line = len(m.conf.read_text().splitlines())
        refused(m.ctl("-c", str(m.conf), "config", "test", check=False), m.conf, key, line)
        refused(run("mirrorctl", "-c", m.conf, "config", "test"), m.conf, key, line)
        refused(m.ctl("config", "reload", check=False), m.conf, key, line)
        said = json.loads(m.ctl("--json", "-c", str(m.conf), "config", "test", check=False).stdout)
        assert (said["ok"], said["error"]["exit"], said["error"]["line"]) == (False, 78, line)
        os.chown(key, 0, NOBODY)
        key.chmod(0o640)
        done = m.ctl("-c", str(m.conf), "config", "test")
        assert done.stdout == f"{m.conf}: ok: 1 repo, 2 listeners, checked by the running daemon\n"
        m.ctl("config", "reload")
        other = folder / "other.conf"
        other.write_text("thredas = 2\n")
        done = m.ctl("-c", str(other), "config", "test", check=False)
        assert done.returncode == 78 and f"{other}:1: " in done.stderr, "another file is not its own"
    finally:
        m.remove()


def test_a_credential_is_the_daemons_own(mirrord, tmp_path):
    """A shell has none of the unit's credentials: the daemon is asked."""
    (tmp_path / "secret").write_text("hello")
    m = Mirrord('repo "a" { protocol = "generic" origin = "https://a.example/" authorization = "credential:secret" }')
    m.env = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    m.start()
    try:
        assert m.ctl("-c", str(m.conf), "config", "test").returncode == 0
    finally:
        m.remove()


# --- limits that hold for nobody ---

LIMITS = ('limit "anonymos" { requests = 1/s }\nlimit "10.0.0" { requests = 1/s }\nlimit "ci" { requests = 1/s }\n'
          'limit "anonymous" { connections = 64 }\nlimit "10.0.0.0/8" { connections = 64 }\n')


def test_a_limit_that_looks_like_a_slip(tmp_path):
    """Without the store: what is nearly `anonymous`, or nearly an address. A token of any other name may be made one day."""
    conf = tmp_path / "test.conf"
    conf.write_text(f'state_dir = "{tmp_path}/s"\nlisten "127.0.0.1:0" {{ }}\nrepo "a" {{ protocol = "hosted" }}\n{LIMITS}')
    for done in (run("mirrord", "-t", "-c", conf), run("mirrorctl", "-c", conf, "config", "test")):
        assert done.returncode == 0
        first, second = done.stderr.splitlines()
        assert first.startswith(f'{conf}:4: warning: limit "anonymos" ') and 'did you mean "anonymous"?' in first
        assert second.startswith(f'{conf}:5: warning: limit "10.0.0" ') and "10.0.0.0/8" in second
    assert json.loads(run("mirrord", "-t", "--json", "-c", conf).stdout)["warnings"].count("warning: ") == 2


def test_a_limit_for_no_token(mirrord):
    """The daemon knows the tokens; one that is made later is under its limit, and the next reload says nothing of it."""
    m = mirrord('repo "models" { protocol = "hosted" }\n' + LIMITS)
    m.says('limit "anonymos" applies to nobody')
    warned = [line for line in m.ctl("config", "reload").stderr.splitlines() if "applies to nobody" in line]
    assert len(warned) == 3 and 'did you mean "anonymous"?' in warned[0], warned
    token = m.token("ci", "read:*")
    warned = m.ctl("config", "reload").stderr
    assert 'limit "ci"' not in warned and 'limit "anonymos"' in warned
    tested = m.ctl("-c", str(m.conf), "config", "test")
    assert 'limit "anonymos" applies to nobody' in tested.stderr and 'limit "ci"' not in tested.stderr
    answers = [m.get("/models/", headers={"Authorization": f"Bearer {token}"}).status for _ in range(20)]
    assert 429 in answers, "the limit holds for the token that came later"


# --- what a reload would refuse ---

REFUSALS = {
    "a port that another has": lambda m, taken: setattr(m, "config", f'{m.config}\nlisten "127.0.0.1:{taken}" {{ }}'),
    "two that exclude each other": lambda m, taken: setattr(
        m, "config", f'{m.config}\nlisten "0.0.0.0:{(p := free_port())}" {{ }}\nlisten "127.0.0.1:{p}" {{ }}'),
    "a log in no folder": lambda m, taken: setattr(m, "access_log", m.folder / "nowhere/access.log"),
    "a log that is a folder": lambda m, taken: setattr(m, "access_log", m.folder),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_the_daemon_refuses_what_its_reload_would(mirrord, what):
    """`config test` says ok to nothing that `config reload` refuses, and changes nothing."""
    m = mirrord('repo "models" { protocol = "hosted" }')
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        REFUSALS[what](m, taken.getsockname()[1])
        m.write_config()
        tested = m.ctl("-c", str(m.conf), "config", "test", check=False)
        reloaded = m.ctl("config", "reload", check=False)
    assert reloaded.returncode != 0 and tested.returncode == 78, (tested, reloaded)
    assert reloaded.stderr.removeprefix("mirrorctl: ").strip() in tested.stderr, (tested, reloaded)
    assert not (m.folder / "nowhere").exists() and m.get("/healthz").status == 200


def test_a_test_takes_nothing(mirrord):
    """What passes is still free: the reload takes it, and a log begins with its first line."""
    m = mirrord('repo "models" { protocol = "hosted" }')
    port, m.access_log = free_port(), m.folder / "other.log"
    m.config += f'\nlisten "127.0.0.1:{port}" {{ }}'
    m.write_config()
    for _ in range(2):
        assert m.ctl("-c", str(m.conf), "config", "test").returncode == 0
    assert not m.access_log.exists()
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", port)) != 0
    m.ctl("config", "reload")
    with socket.socket() as s:
        assert s.connect_ex(("127.0.0.1", port)) == 0


def test_an_origin_with_a_folder_too_many_is_warned_of(mirrord, tmp_path):
    """The index's own address is copied from pip's settings: its clients would then ask for simple/simple/."""
    too_deep = ['protocol = "pypi" origin = "https://p.example/simple/"', 'protocol = "pypi" origin = "https://p.example/root/simple"',
                'protocol = "pypi" origin = "https://p.example/simple/" sync { requirements = {"demo"} }',
                'protocol = "conda" origin = "https://c.example/forge/noarch/"']
    right = ['protocol = "pypi" origin = "https://p.example/"', 'protocol = "pypi" origin = "https://p.example/whl/"',
             'protocol = "pypi" origin = "https://p.example/notsimple/"', 'protocol = "conda" origin = "https://c.example/forge/"',
             'protocol = "generic" origin = "https://p.example/simple/"', 'protocol = "hosted"']
    m = mirrord("\n".join(f'repo "r{n}" {{ {text} }}' for n, text in enumerate([*too_deep, *right])))
    for done in (m.ctl("-c", str(m.conf), "config", "test"), run("mirrord", "-t", "-c", m.conf)):
        assert done.stderr.count("warning: ") == len(too_deep), done.stderr
        assert 'warning: repo "r0": origin ends in "simple/"' in done.stderr and "write the address one level above" in done.stderr
        assert "/r0/simple/" in done.stderr and 'repo "r3": origin ends in "noarch/"' in done.stderr


def test_a_certificate_that_expires_soon_is_warned_of(mirrord, tmp_path):
    """Before it is in force: by the daemon, and without one."""
    m = mirrord('repo "models" { protocol = "hosted" }')
    for days, warned in ((60, 0), (3, 1)):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", tmp_path / "key.pem",
                        "-out", tmp_path / "cert.pem", "-days", str(days), "-subj", "/CN=localhost"], check=True, capture_output=True)
        m.config = ('repo "models" { protocol = "hosted" }\n'
                    f'listen "127.0.0.1:{free_port()}" {{ tls_certificate = "{tmp_path}/cert.pem" tls_key = "{tmp_path}/key.pem" }}')
        m.write_config()
        for done in (m.ctl("-c", str(m.conf), "config", "test"), run("mirrord", "-t", "-c", m.conf)):
            assert done.returncode == 0 and done.stderr.count(": warning: the certificate of 127.0.0.1:") == warned, done
            assert done.stderr.count(" expires in ") == warned


def test_a_mirror_without_repos_is_warned_of(mirrord):
    m = mirrord("")
    m.says("no repo is configured")
    for done in (m.ctl("-c", str(m.conf), "config", "test"), run("mirrord", "-t", "-c", m.conf)):
        assert done.returncode == 0 and done.stderr.count("warning: ") == 1, done
        assert "no repo is configured" in done.stderr and "add a repo section" in done.stderr
    m.config = 'repo "models" { protocol = "hosted" }'
    m.write_config()
    assert m.ctl("config", "reload").stderr == ""
    assert m.ctl("-c", str(m.conf), "config", "test").stderr == ""


@pytest.mark.parametrize("has,lacks", [("secret", "address"), ("address", "secret")])
def test_a_cluster_with_half_of_what_mirrors_need_for_each_other(tmp_path, has, lacks):
    words = {"secret": f'secret = "file:{tmp_path}/secret"', "address": 'address = "http://10.0.0.1:8080"'}
    (tmp_path / "secret").write_text("s" * 40)
    (tmp_path / "keys").write_text("a:b")
    for f in ("secret", "keys"):
        (tmp_path / f).chmod(0o600)
    conf = tmp_path / "mirrord.conf"
    for given, warned in (([has], 1), (["secret", "address"], 0), ([], 0)):
        conf.write_text(f'''state_dir = "{tmp_path}/state" listen "127.0.0.1:8080" {{ }} repo "models" {{ protocol = "hosted" }}
            cluster "s3://b/p/" {{ endpoint = "http://127.0.0.1:9" authorization = "file:{tmp_path}/keys" {" ".join(words[w] for w in given)} }}''')
        done = run("mirrord", "-t", "-c", conf)
        assert done.returncode == 0 and done.stderr.count("warning: ") == warned, done
        assert (f"; add {lacks}\n" in done.stderr) == bool(warned)


@pytest.mark.parametrize("state,said", [("state", "info  store.created dir={}\n"), ("var/lib/state", "warn  store.created dir={} neither the folder")])
def test_a_state_dir_that_is_made_is_logged(mirrord, tmp_path, state, said):
    """Parents that are missing too are often a slip, or a disk that is not mounted."""
    m = mirrord('repo "models" { protocol = "hosted" }', state=tmp_path / state)
    m.says(said.format(m.state))
    m.stop()
    m.start()
    assert m.log().count("store.created") == 1
