"""mirrord.py - a mirrord of our own: its folder, its configuration, its life, what it says about itself."""
import atexit
import functools
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

from harness.curl import curl, curl_all

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MIRROR_BUILD", ROOT / "build"))
SLOW = int(os.environ.get("MIRROR_SLOW", "1"))  # sanitizers: give everything more time
REPORTS = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:|CHECK failed")
SANITIZERS = {"ASAN_OPTIONS": "exitcode=99", "UBSAN_OPTIONS": "print_stacktrace=1",
              "TSAN_OPTIONS": f"exitcode=99:suppressions={ROOT}/tests/tsan.supp"}


_given = []  # the last one last


def ports_of(worker, workers):
    """The ports that this process of a test run may give away. They are below those that the kernel gives to connections, so one is still
    free when a program comes back to it after a kill; and no other process of the run gives one of them away before it is bound."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    low, high = (10000, first) if first > 20000 else (first, 61000)
    share = (high - low) // workers
    return range(low + worker * share, low + (worker + 1) * share)


def is_free(port):
    with socket.socket() as s:
        try:
            s.bind(("", port))
        except OSError:
            return False
    return True


def free_port():
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    ports = ports_of(int(worker.removeprefix("gw")), int(workers))
    for _ in range(1000):
        port = random.SystemRandom().choice(ports)
        if is_free(port) and port not in _given:
            _given.append(port)
            del _given[:-len(ports) // 2]  # a run asks for more than there are
            return port
    raise AssertionError("no port is free")


def until(what, limit_s=120):
    """Waits until what() holds: as long as the slowest machine may need, for it is only waited for where something is wrong."""
    began = time.monotonic()
    end = began + limit_s * SLOW
    while not what():
        now = time.monotonic()
        assert now < end, "it never came to that"
        pause(now - began)
        began = time.monotonic()


def pause(took):
    """Between two looks of which the last took so long. Looks that start a program would keep a core busy otherwise."""
    time.sleep(min(max(0.01, 4 * took), 0.5))


def know_each_other(mirrors):
    """Waits until each of these mirrors of a cluster has heard that all of them are ready, and of no others."""
    until(lambda: all(sum(n["state"] == "ready" for n in m.ctl_json("cluster", "nodes")) == len(mirrors) for m in mirrors))


def certificate(folder, *addresses):
    """A self-signed one for loopback and these; returns (certificate, key)."""
    names = ",".join(["DNS:localhost", "IP:127.0.0.1", *(f"IP:{a}" for a in addresses)])
    cert, key = pathlib.Path(folder, "cert.pem"), pathlib.Path(folder, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", key, "-out", cert, "-days", "30", "-subj", "/CN=localhost",
                    "-addext", f"subjectAltName={names}"], check=True, capture_output=True)
    return cert, key


def patient(config):
    """An origin on a slow machine is not a silent one: only who writes `patience` tests it."""
    return config if "patience" in config else re.sub(r'protocol = "(hf|pypi|conda|oci)"', r'\g<0> patience = 1h', config)


@functools.cache
def empty_tables():
    """The metadata of a store without a row: harness/empty_tables.c. None where no test programs are built."""
    program = BUILD / "harness/empty_tables"
    if not program.exists():
        return None
    folder = tempfile.mkdtemp(prefix="mirrord-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run([program, folder], check=True, env=dict(os.environ, **SANITIZERS))
    for file in pathlib.Path(folder).glob("[LO]*"):  # RocksDB's LOG, LOCK and OPTIONS: each start writes its own
        file.unlink()
    return folder


CLUSTERED = int(os.environ.get("MIRROR_CLUSTER", "0"))  # every mirror of a test is one of so many, of a cluster of its own
_clusters = {}


@functools.cache
def cluster_bucket():
    from harness.bucket import Bucket
    return Bucket().__enter__()


def cluster_of(state, address=None):
    """The section of a cluster, which stays that of this state folder."""
    b = cluster_bucket()
    keys = pathlib.Path(tempfile.gettempdir()) / f"mirrord-{os.getpid()}.keys"
    if not keys.exists():
        b.keys_file(keys.parent).rename(keys)
    number = _clusters.setdefault(str(state), len(_clusters))
    if address and not (secret := keys.with_suffix(".secret")).exists():
        secret.touch(0o600)
        secret.write_text("a secret of these clusters\n")
    ways = f'secret = "file:{secret}" address = "{address}" heartbeat = "200ms"' if address else ""
    return f'cluster "s3://mirror/c{number}/" {{ {b.access(keys)} poll = "200ms" {ways} }}'


class Mirrord:
    """config: repos and whatever else, in the file's own syntax; listeners, folders and logs are added here."""

    def __init__(self, config, cert=None, folder=None, state=None, build=BUILD, command=(), host="127.0.0.1", env=None):
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="mirrord-"))
        self.owns_folder = folder is None
        self.state = pathlib.Path(state or self.folder / "state")
        self.socket = self.folder / "control.sock"
        self.conf = self.folder / "mirrord.conf"
        self.log_path = self.folder / "log"
        self.build = pathlib.Path(build)
        self.cert = cert
        self.config = config
        self.access_log = self.folder / "access.log"
        self.command = command  # what runs before the program: taskset, say
        self.plain = self.owns_folder and state is None and build == BUILD and not command
        self.env = env or {}  # of its next start, beside ours
        self.host = host
        self.child = None
        self.port = self.tls_port = 0
        self.leader, self.companions = None, []  # the others of its cluster

    # --- life ---

    def write_config(self):
        text = [f'state_dir = "{self.state}"', f'control_socket = "{self.socket}"',
                f'access_log = "{self.access_log}"',  f'listen "{self.host}:{self.port}" {{ }}']
        if self.cert:
            text.append(f'listen "{self.host}:{self.tls_port}" '
                        f'{{ tls_certificate = "{self.cert[0]}" tls_key = "{self.cert[1]}" }}')
        if "status_age" not in self.config:
            text.append('status_age = "0s"')  # a test sees what is so now
        if CLUSTERED and "cluster " not in self.config:
            text.append(cluster_of(self.leader.state if self.leader else self.state, f"http://{self.host}:{self.port}" if CLUSTERED > 1 else None))
        if "storage {" not in self.config:
            text.append('storage { quota = "8g" reserve = "16m" }')
        self.conf.write_text("\n".join(text) + "\n" + patient(self.config) + "\n")

    def prepare_state(self):
        """Where a test says nothing of the state folder, a first start finds its tables made."""
        if self.plain and not self.env and not self.state.exists() and empty_tables():
            self.state.mkdir(0o750)
            shutil.copytree(empty_tables(), self.state / "meta")

    def start(self, wait=True, fails=False):
        """A port may be taken between our look and its bind: then once more with another."""
        self.prepare_state()
        for _ in range(5):
            self.port, self.tls_port = self.port or free_port(), self.tls_port or free_port()
            self.write_config()
            began = self.log_path.stat().st_size if self.log_path.exists() else 0
            with open(self.log_path, "ab") as log:
                self.child = subprocess.Popen([*self.command, self.build / "mirrord", "-c", self.conf], stdin=subprocess.DEVNULL,
                                              stdout=log, stderr=log, env=dict(os.environ, **SANITIZERS, **self.env))
            if not wait or self.wait_ready():
                self.start_companions()
                return self
            if fails or b"in use" not in self.log_path.read_bytes()[began:]:
                break
            self.port = self.tls_port = 0
        raise AssertionError(f"mirrord did not come up (exit {self.child.poll()}):\n{self.log()[-4000:]}")

    def start_companions(self):
        """With MIRROR_CLUSTER: the other mirrors, and until all know of each other. What a test asks this one, one of them may fetch."""
        if self.leader or self.companions or "cluster " in self.config:
            return
        for _ in range(CLUSTERED - 1):
            other = Mirrord(self.config, self.cert, build=self.build, host=self.host)
            other.leader = self
            self.companions.append(other.start())
        if self.companions:
            know_each_other([self, *self.companions])

    def wait_ready(self, limit_s=120):
        """Its control socket comes after its listeners: who answers is this one, not whoever else took our port."""
        end = time.monotonic() + limit_s * SLOW
        while time.monotonic() < end and self.child.poll() is None:
            try:
                with socket.socket(socket.AF_UNIX) as s:
                    s.connect(str(self.socket))
                with urllib.request.urlopen(f"http://{self.host}:{self.port}/readyz", timeout=5) as r:
                    if r.status == 200:
                        return True
            except OSError:
                pass
            time.sleep(0.02)
        return False

    def stop(self, limit_s=120):
        """SIGTERM must end it in order: exit 0, nothing that a sanitizer or a CHECK has to say."""
        if self.child is None:
            return
        child, self.child = self.child, None
        child.send_signal(signal.SIGTERM)
        try:
            rc = child.wait(limit_s * SLOW)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGABRT)
            child.wait()
            raise AssertionError(f"mirrord did not end after SIGTERM:\n{self.log()[-4000:]}") from None
        self.complain(rc)

    def complain(self, rc):
        log = self.log()
        found = REPORTS.search(log)
        assert rc == 0 and not found, \
            f"mirrord ended with {rc}:\n{log[max(0, found.start() - 200):found.start() + 6000] if found else log[-4000:]}"

    def kill(self):
        child, self.child = self.child, None
        child.kill()
        child.wait()

    def alive(self):
        return self.child is not None and self.child.poll() is None

    def remove(self):
        for m in self.companions:
            m.remove()
        try:
            if self.alive():
                self.stop()
            elif self.child is not None:
                self.complain(self.child.returncode)
        finally:
            if self.child is not None and self.child.poll() is None:
                self.child.kill()
            if self.owns_folder:
                shutil.rmtree(self.folder, ignore_errors=True)

    def reload(self):
        self.write_config()
        return self.ctl("config", "reload")

    # --- asking it ---

    def url(self, path, wire="h1"):
        return f"https://{self.host}:{self.tls_port}{path}" if wire == "h2" else f"http://{self.host}:{self.port}{path}"

    def get(self, path, wire="h1", **kw):
        kw.setdefault("limit_s", 120 * SLOW)
        return curl(self.url(path, wire), wire=wire, cacert=self.cert[0] if self.cert else None, **kw)

    def get_all(self, paths, wire="h1"):
        """(status, body) of each of many."""
        return curl_all([self.url(p, wire) for p in paths], wire, self.cert[0] if self.cert else None, 120 * SLOW)

    def peak_bytes(self):
        """The most memory that it ever had."""
        status = pathlib.Path(f"/proc/{self.child.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024

    def settle(self):
        """Waits until no fill is under way: what was answered is sealed then, and will be a hit."""
        until(lambda: not self.metric("mirrord_cache_fills_open"))

    def answered(self, what, least=1, **fields):
        """The access log's entries that have that and these: a thread writes it, maybe after the answer; so many are waited for."""
        def entries():
            lines = self.access_log.read_text().split("\n")[:-1] if self.access_log.exists() else []
            found = [json.loads(line) for line in lines if what in line]
            return [e for e in found if e.items() >= fields.items()]
        until(lambda: len(entries()) >= least)
        return entries()

    def says(self, what, times=1):
        """Waits until its log has that: it is written by a thread."""
        until(lambda: self.log().count(what) >= times)

    def forsaken(self):
        """Waits until each connection but our own has ended, and so each request of clients that are gone: the answer to one may
        have gone nowhere, its line in the access log is there."""
        def alone():
            got = self.get("/metrics")
            return re.search(rb"^mirrord_http_connections 1$", got.body, re.M) and self.answered(got["x-request-id"])
        until(alone)

    def put(self, path, data, wire="h1", token=None, headers=None, method="PUT", **kw):
        headers = dict(headers or {}, **({"Authorization": f"Bearer {token}"} if token else {}))
        return self.get(path, wire=wire, headers=headers, method=method, data=data, **kw)

    def metrics(self):
        """The page, or nothing where nobody answers. Tests look here many times, so no curl is started for it."""
        c = http.client.HTTPConnection(self.host, self.port, timeout=120 * SLOW)
        try:
            c.request("GET", "/metrics", headers={"Connection": "close"})
            return c.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return ""
        finally:
            c.close()

    def metric(self, name, **labels):
        """Sum over the label sets that have at least these labels; 0 when there are none."""
        total = 0.0
        for line in self.metrics().splitlines():
            found = line.startswith(name) and re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if found and found[1] == name:
                have = dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))
                if all(have.get(k) == v for k, v in labels.items()):
                    total += float(found[3])
        return total

    def reaches(self, name, least, limit_s=120, **labels):
        """Waits until the metric is that large."""
        end = time.monotonic() + limit_s * SLOW
        while (now := self.metric(name, **labels)) < least:
            assert time.monotonic() < end, f"{name} stays at {now}, below {least}"
            time.sleep(0.01)

    def upstream_requests(self):
        return int(self.metric("mirrord_upstream_requests_total"))

    def ctl(self, *args, check=True, limit_s=120):
        run = subprocess.run([self.build / "mirrorctl", "--socket", self.socket, *args], capture_output=True, text=True,
                             timeout=limit_s * SLOW, check=False, env=dict(os.environ, **SANITIZERS))
        assert not REPORTS.search(run.stderr), run.stderr
        assert not check or run.returncode == 0, f"mirrorctl {' '.join(args)}: {run.returncode}\n{run.stdout}{run.stderr}"
        return run

    def start_ctl(self, *args):
        """The same, without waiting for its end."""
        return subprocess.Popen([self.build / "mirrorctl", "--socket", self.socket, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                env=dict(os.environ, **SANITIZERS))

    def ctl_json(self, *args):
        return json.loads(self.ctl("--json", *args).stdout)

    def token(self, name, *scopes):
        flags = [x for s in scopes for x in ("--scope", s)]
        return re.search(r"mrd_\w+", self.ctl("token", "create", "--name", name, *flags).stdout)[0]

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
