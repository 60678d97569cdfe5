"""A certificate from `mirrorctl tls init`: real clients trust the listener that its output makes, the daemon's user reads its key,
and who runs the mirror hears of it before it expires."""
import json
import os
import pathlib
import re
import socket
import ssl
import stat
import subprocess
import tempfile
import time

import pytest

from harness.mirrord import BUILD, SLOW, free_port

DAY = 24 * 3600


def ctl(*words, check=True):
    done = subprocess.run([BUILD / "mirrorctl", *map(str, words)], capture_output=True, text=True, check=False, timeout=120 * SLOW)
    assert not check or done.returncode == 0, done
    return done


def openssl(*words):
    return subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, check=True, timeout=60 * SLOW).stdout


@pytest.fixture
def m(mirrord):
    return mirrord('repo "models" { protocol = "hosted" }\ninclude("conf.d/*.conf")')


def with_listener(m, said):
    """Its output as it stands, but for the port, becomes a file of conf.d."""
    port = free_port()
    (m.folder / "conf.d").mkdir(exist_ok=True)
    (m.folder / "conf.d/tls.conf").write_text(said.replace("0.0.0.0:8443", f"127.0.0.1:{port}"))
    m.reload()
    return port


def curl(client, cert, name, port):
    """Asks our port by that name, whatever it leads to."""
    return subprocess.run([client("curl"), "-sSf", "--cacert", cert, "--connect-to", f"{name}:{port}:127.0.0.1:{port}",
                           f"https://{name}:{port}/healthz"], check=False, timeout=60 * SLOW, capture_output=True).returncode


def test_clients_trust_what_it_makes(m, client):
    """Nothing but its output is needed: curl, wget (GnuTLS), OpenSSL and Python at their strictest, by names and addresses."""
    port = with_listener(m, ctl("-c", m.conf, "tls", "init", "--name", "mirror.example", "--name", "192.0.2.7").stdout)
    cert = m.folder / "tls/cert.pem"
    for name in ("127.0.0.1", "localhost", "mirror.example", "192.0.2.7", socket.gethostname()):
        assert curl(client, cert, name, port) == 0, name
    assert curl(client, cert, "other.example", port) == 60, "a name that is not in it"
    subprocess.run([client("wget"), "-q", "-O", "-", f"--ca-certificate={cert}", f"https://localhost:{port}/healthz"], check=True,
                   timeout=60 * SLOW, capture_output=True)
    assert openssl("verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", cert, cert).strip().endswith(": OK")
    context = ssl.create_default_context(cafile=cert)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with socket.create_connection(("127.0.0.1", port), timeout=60 * SLOW) as raw, context.wrap_socket(raw, server_hostname="localhost") as s:
        assert s.version() == "TLSv1.3"


@pytest.mark.parametrize("program,words,reached", [
    ("pip", "download --no-deps --retries 0 --cert {cert} --index-url {url}/models/simple/ nothing-there", "No matching distribution"),
    ("uv", "pip install -q --target {folder}/at --default-index {url}/models/simple/ nothing-there", "not found"),
    ("trainagent", "--mirror {url} --shelf {folder}/shelf pull models/me/m/none.bin --to {folder}/x", "not found on the mirror")])
def test_clients_of_packages_trust_it(m, client, tmp_path, program, words, reached):
    """By the options and variables that docs/operations.md names: the mirror's own answer comes through. uv has rustls."""
    port = with_listener(m, ctl("-c", m.conf, "tls", "init").stdout)
    cert = m.folder / "tls/cert.pem"
    path = BUILD / program if program == "trainagent" else client(program)

    def run(**trust):
        return subprocess.run([path, *words.format(cert=trust.pop("cert", cert), url=f"https://localhost:{port}", folder=tmp_path).split()],
                              capture_output=True, text=True, check=False, timeout=120 * SLOW, cwd=tmp_path,
                              env=dict({k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "SSL_", "TRAINAGENT_"))},
                                       UV_CACHE_DIR=str(tmp_path / "uv"), **trust))
    trusted = run(SSL_CERT_FILE=str(cert), TRAINAGENT_CA_FILE=str(cert))
    assert trusted.returncode != 0 and reached in trusted.stderr, trusted
    strange = run(cert="/etc/ssl/certs/ca-certificates.crt")
    assert strange.returncode != 0 and re.search("certificate", strange.stderr + strange.stdout, re.I), strange


def test_what_it_makes(tmp_path):
    conf = tmp_path / "mirrord.conf"
    said = json.loads(ctl("--json", "-c", conf, "tls", "init", "--name", "mirror.example").stdout)
    cert, key = tmp_path / "tls/cert.pem", tmp_path / "tls/key.pem"
    assert (said["certificate"], said["key"]) == (str(cert), str(key))
    text = openssl("x509", "-in", cert, "-noout", "-text")
    assert "prime256v1" in text and "CA:FALSE" in text and "TLS Web Server Authentication" in text
    named = set(re.findall(r"(?:DNS|IP Address):([^,\s]+)", text))
    assert {"mirror.example", "localhost", "127.0.0.1", socket.gethostname()} <= named
    assert {n for n in said["names"] if ":" not in n} <= named and "mirror.example" in said["names"]
    assert 800 * DAY < said["expires_unix_s"] - time.time() < 826 * DAY
    assert stat.S_IMODE(key.stat().st_mode) in (0o600, 0o640) and stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o750
    assert openssl("pkey", "-in", key, "-pubout") == openssl("x509", "-in", cert, "-noout", "-pubkey")
    before = key.read_bytes()
    again = ctl("-c", conf, "tls", "init", "--name", "other.example", check=False)
    assert again.returncode == 73 and f"{key} exists" in again.stderr and "other.example" in again.stderr and key.read_bytes() == before
    assert ctl("-c", conf, "tls", "init", "--csr", check=False).returncode == 73, "the key is there"
    ctl("-c", conf, "tls", "init", "--force")
    assert key.read_bytes() != before
    for wrong in ("two words", "http://mirror/", "", "a..b", "192.0.2.7/24"):
        assert ctl("-c", conf, "tls", "init", tmp_path / "other", f"--name={wrong}", check=False).returncode == 64, wrong
    assert not (tmp_path / "other").exists()


def section(said):
    return [line for line in said.splitlines() if not line.startswith("#")]


def test_a_second_run_keeps_the_pair(m, client):
    """Its output may take the place of the first one's file: the same section, and the listener stays."""
    first = ctl("-c", m.conf, "tls", "init", "--name", "mirror.example")
    files = {f: f.read_bytes() for f in (m.folder / "tls").iterdir()}
    again = ctl("-c", m.conf, "tls", "init", "--name", "MIRROR.example")
    assert section(again.stdout) == section(first.stdout) != [] and "# Kept " in again.stdout and "# Made" not in again.stdout
    assert first.stderr == "" and "tls/key.pem" in again.stderr and "kept" in again.stderr and "--force" in again.stderr
    assert {f: f.read_bytes() for f in (m.folder / "tls").iterdir()} == files
    assert curl(client, m.folder / "tls/cert.pem", "mirror.example", with_listener(m, again.stdout)) == 0
    said, made = (json.loads(ctl("--json", "-c", m.conf, "tls", "init", *more).stdout) for more in ((), ("--force",)))
    assert (said["kept"], made["kept"], said["listen"]) == (True, False, made["listen"]) and "mirror.example" in said["names"]
    assert "mirror.example" not in made["names"] and said["expires_unix_s"] <= made["expires_unix_s"]


@pytest.mark.parametrize("what,why", [("another key", "not the key of the certificate"), ("no key", "cannot be read"), ("expired", "has expired"),
                                      ("no certificate", "cannot be read"), ("no names", "no alternative names")])
def test_a_pair_that_is_not_good_is_not_kept(draft, what, why):
    """Nor is it replaced: a daemon may use a part of it."""
    conf, folder = draft
    ctl("-c", conf, "tls", "init")
    key, cert = folder / "key.pem", folder / "cert.pem"
    if what == "another key":
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
    elif what == "no key":
        key.write_text("words\n")
    elif what == "no certificate":
        cert.unlink()
    elif what == "expired":
        openssl("req", "-new", "-key", key, "-out", folder / "csr.pem", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
        openssl("x509", "-req", "-in", folder / "csr.pem", "-signkey", key, "-days", -1, "-copy_extensions", "copy", "-out", cert)
    else:
        openssl("req", "-x509", "-key", key, "-out", cert, "-subj", "/CN=localhost")
    before = {f: f.read_bytes() for f in folder.iterdir()}
    done = ctl("-c", conf, "tls", "init", check=False)
    assert (done.returncode, done.stdout) == (73, "") and f"{key} exists" in done.stderr and why in done.stderr, done
    assert {f: f.read_bytes() for f in folder.iterdir()} == before


def test_a_request_for_an_authority(m, client, tmp_path):
    """The section is printed with the place where the certificate belongs; the chain of an authority makes it work."""
    said = ctl("-c", m.conf, "tls", "init", "--csr", "--name", "mirror.example").stdout
    folder = m.folder / "tls"
    assert sorted(f.name for f in folder.iterdir()) == ["cert.csr", "key.pem"]
    assert "DNS:mirror.example" in openssl("req", "-in", folder / "cert.csr", "-noout", "-text", "-verify")
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", tmp_path / "ca.key",
            "-out", tmp_path / "ca.pem", "-days", 30, "-subj", "/CN=our authority")
    openssl("x509", "-req", "-in", folder / "cert.csr", "-CA", tmp_path / "ca.pem", "-CAkey", tmp_path / "ca.key", "-days", 20,
            "-copy_extensions", "copy", "-out", folder / "cert.pem")
    port = with_listener(m, said)
    assert curl(client, tmp_path / "ca.pem", "mirror.example", port) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_key_is_for_root_and_the_daemon(tmp_path):
    """Whose state_dir is the daemon's user."""
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", 65534, 65534)
    conf = tmp_path / "mirrord.conf"
    conf.write_text(f'state_dir = "{tmp_path}/state"\nlisten "127.0.0.1:0" {{ }}\nrepo "a" {{ protocol = "hosted" }}\n')
    ctl("-c", conf, "tls", "init")
    for path, mode in ((tmp_path / "tls", 0o750), (tmp_path / "tls/key.pem", 0o640)):
        assert (path.stat().st_uid, path.stat().st_gid, stat.S_IMODE(path.stat().st_mode)) == (0, 65534, mode), path


# --- before it expires ---

def expires(m, days, folder):
    """A listener whose certificate has so many days left."""
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", folder / "key.pem", "-out",
            folder / "cert.pem", "-days", days, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    return with_listener(m, f'listen "0.0.0.0:8443" {{ tls_certificate = "{folder}/cert.pem" tls_key = "{folder}/key.pem" }}')


@pytest.mark.parametrize("days,soon", [(60, False), (9, True)])
def test_its_expiry_is_shown(m, tmp_path, days, soon):
    port = expires(m, days, tmp_path)
    where = f"127.0.0.1:{port}"
    left = m.metric("mirrord_tls_certificate_expiry_timestamp_seconds", listen=where) - time.time()
    assert (days - 1) * DAY < left <= days * DAY
    shown = next(c for c in json.loads(m.get("/-/status.json").body)["certificates"] if c["listen"] == where)
    assert shown["soon"] == soon and abs(shown["expires_unix_s"] - time.time() - left) < 3600
    status = m.ctl("status", check=False)
    assert status.returncode == (1 if soon else 0) and (f"TROUBLE the certificate of {where} expires in " in status.stdout) == soon
    line = next(x for x in status.stdout.splitlines() if x.startswith(f"certificate of {where}: expires in "))
    assert ("WARNING" in line) == soon
    page = m.get("/").body.decode()
    assert (f'<p class="certificate">The certificate of {where} expires in ' in page) != soon  # said once: among the troubles
    assert page.count(f"ertificate of {where}") == 1
    warned = m.ctl("config", "reload").stderr
    assert (f"the certificate of {where} expires in" in warned) == soon
    if soon:
        m.says(f"the certificate of {where} expires in")


def test_the_first_of_a_chain_counts(m, tmp_path):
    """A chain is no longer good when one of its certificates is not; one without TLS has no expiry."""
    expires(m, 60, tmp_path)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", tmp_path / "ca.key", "-out",
            tmp_path / "ca.pem", "-days", 5, "-subj", "/CN=between")
    with open(tmp_path / "cert.pem", "ab") as chain:
        chain.write((tmp_path / "ca.pem").read_bytes())
    m.ctl("config", "reload")
    status = m.ctl("--json", "status", check=False)
    found = {c["listen"]: c["soon"] for c in json.loads(status.stdout)["certificates"]}
    assert status.returncode == 1, "a certificate that expires soon needs a person"
    assert list(found.values()) == [False, True] and f"127.0.0.1:{m.port}" not in found, found


# --- files ---

@pytest.fixture
def draft(tmp_path):
    """A configuration, and a folder of keys that is not there yet."""
    conf = tmp_path / "mirrord.conf"
    conf.write_text(f'state_dir = "{tmp_path}/state"\nlisten "127.0.0.1:0" {{ }}\nrepo "a" {{ protocol = "hosted" }}\n')
    return conf, tmp_path / "tls"


def fits(folder):
    """The certificate is the key's."""
    return openssl("pkey", "-in", folder / "key.pem", "-pubout") == openssl("x509", "-in", folder / "cert.pem", "-noout", "-pubkey")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_umask_does_not_lock_the_daemon_out(draft):
    """Root's is 077 on hardened machines."""
    conf, folder = draft
    (folder.parent / "state").mkdir()
    os.chown(folder.parent / "state", 65534, 65534)
    subprocess.run(["sh", "-c", 'umask 077; exec "$@"', "sh", BUILD / "mirrorctl", "-c", conf, "tls", "init"], check=True, capture_output=True,
                   timeout=120 * SLOW)
    for path, mode in ((folder, 0o750), (folder / "key.pem", 0o640), (folder / "cert.pem", 0o644)):
        assert stat.S_IMODE(path.stat().st_mode) == mode, path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_that_is_closed_to_the_daemon_is_warned_of():
    """It was there before and stays as it is; the output does not claim that the daemon can read the key."""
    with tempfile.TemporaryDirectory() as name:
        top = pathlib.Path(name)
        top.chmod(0o755)
        (top / "state").mkdir()
        os.chown(top / "state", 65534, 65534)
        (top / "tls").mkdir(mode=0o700)
        (top / "mirrord.conf").write_text(f'state_dir = "{top}/state"\nlisten "127.0.0.1:0" {{ }}\nrepo "a" {{ protocol = "hosted" }}\n')
        done = ctl("-c", top / "mirrord.conf", "tls", "init")
        assert f"warning: {top}/tls/key.pem: the user nobody cannot enter the folder" in done.stderr and "can read" not in done.stdout, done
        (top / "tls").chmod(0o755)
        done = ctl("-c", top / "mirrord.conf", "tls", "init", "--force")
        assert done.stderr == "" and "which root and the group nogroup can read" in done.stdout, done


def test_a_link_is_not_replaced(draft):
    conf, folder = draft
    folder.mkdir()
    (folder / "key.pem").symlink_to(folder / "not-there-yet.pem")
    done = ctl("-c", conf, "tls", "init", check=False)
    assert done.returncode == 73 and "key.pem exists" in done.stderr
    assert sorted(f.name for f in folder.iterdir()) == ["key.pem"] and (folder / "key.pem").is_symlink()


def test_a_key_keeps_its_certificate_when_the_other_cannot_be_made(draft):
    """The daemon starts with the old pair, or with the new one."""
    conf, folder = draft
    ctl("-c", conf, "tls", "init")
    key = (folder / "key.pem").read_bytes()
    (folder / "cert.pem").rename(folder / "old.pem")
    (folder / "cert.pem").mkdir()
    done = ctl("-c", conf, "tls", "init", "--force", check=False)
    assert done.returncode == 73 and f"{folder}/cert.pem is a folder" in done.stderr
    assert (folder / "key.pem").read_bytes() == key and sorted(f.name for f in folder.iterdir()) == ["cert.pem", "key.pem", "old.pem"]


def test_two_at_once_make_one_pair(draft):
    conf, folder = draft
    begun = [subprocess.Popen([BUILD / "mirrorctl", "-c", conf, "tls", "init"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(8)]
    assert [p.wait(120 * SLOW) for p in begun] == [0] * 8, "the first makes it, the others keep it"
    assert fits(folder) and sorted(f.name for f in folder.iterdir()) == ["cert.pem", "key.pem"]


def test_a_certificate_that_is_not_valid_yet_is_trouble(m, tmp_path):
    """The clock of this machine has been put back, or the wrong file was placed: every client refuses it."""
    (tmp_path / "index.txt").touch()
    (tmp_path / "ca.conf").write_text(f"[ca]\ndefault_ca = d\n[d]\ndatabase = {tmp_path}/index.txt\nrand_serial = yes\nnew_certs_dir = {tmp_path}\n"
                                      "default_md = sha256\npolicy = p\n[p]\ncommonName = supplied\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "csr.pem",
            "-subj", "/CN=localhost")
    day = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + 100 * DAY))
    openssl("ca", "-batch", "-notext", "-selfsign", "-config", tmp_path / "ca.conf", "-keyfile", tmp_path / "key.pem", "-in", tmp_path / "csr.pem",
            "-out", tmp_path / "cert.pem", "-startdate", day, "-enddate", "20991231235959Z")
    port = with_listener(m, f'listen "0.0.0.0:8443" {{ tls_certificate = "{tmp_path}/cert.pem" tls_key = "{tmp_path}/key.pem" }}')
    status = m.ctl("status", check=False)
    trouble, todo, *_ = status.stdout.splitlines()
    assert status.returncode == 1 and trouble.startswith(f"TROUBLE the certificate of 127.0.0.1:{port} becomes valid only in "), status
    assert "clock" in todo
    line = next(x for x in status.stdout.splitlines() if x.startswith(f"certificate of 127.0.0.1:{port}"))
    assert "becomes valid in " in line and "expires" not in line, line
    assert "becomes valid only in" in m.ctl("-c", str(m.conf), "config", "test").stderr
    assert "becomes valid only in" in m.get("/").body.decode()
