"""Unmodified clients and trainagent pull and publish through HAProxy (conf/examples/cluster/haproxy.cfg) and three mirrors, of which one
is killed with SIGKILL every three seconds or so and started again.

No client may take wrong bytes for right, no upload that was answered may be lost, and trainagent may not fail. Stock clients do what they
do when a transfer breaks: some go on, some begin anew, some fail. Their failures are counted and printed. MIRROR_KILLS sets the number
of kills; with MIRROR_HEAVY (`make test-heavy`) they take two minutes.
"""
import collections
import hashlib
import http.client
import itertools
import os
import pathlib
import random
import shutil
import subprocess
import threading
import time
import types

import pytest

from clients.conftest import VENV
from harness.balancer import Balancer
from harness.bucket import Bucket
from harness.image import layout
from harness.mirrord import BUILD, SLOW, free_port, until
from harness.origin import Origin, span
from harness.python_dist import fields, form, wheel
from system.test_agent import Agent

KILLS = int(os.environ.get("MIRROR_KILLS", "40" if os.environ.get("MIRROR_HEAVY") else "3"))
PATIENCE_S = 120 * SLOW
COLD_BYTES, COLD_RATE = 12 << 20, 8 << 20


class World:
    """Three mirrors, the balancer, and what is published on them: folders and files as clients must have them."""

    def __init__(self, mirrors, port, token, folder, origin):
        self.mirrors, self.port, self.token, self.folder, self.origin = mirrors, port, token, folder, origin
        self.url = f"http://127.0.0.1:{port}"
        self.numbers = itertools.count()
        self.env = {"PATH": f"{VENV}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HF_ENDPOINT": f"{self.url}/models",
                    "HF_HUB_DISABLE_TELEMETRY": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "REGISTRY_AUTH_FILE": str(folder / "auth.json")}
        (folder / "auth.json").write_text("{}")
        (folder / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        self.files = {f"part-{i}.bin": os.urandom((3 << 20) + i) for i in range(6)} | {f"conf/{i}.json": os.urandom(100 * i) for i in range(20)}
        self.wheel = wheel("demo", "1.0", files={"demo_data.bin": os.urandom(4 << 20)})
        self.layers = folder / "img"
        self.published = {}  # path -> bytes
        self.cold = []  # paths of the origin

    def place(self):
        """A new folder, which its caller removes: what a client may keep to itself is not there."""
        at = self.folder / f"run{next(self.numbers)}"
        at.mkdir()
        return at

    def run(self, at, *command, **env):
        try:
            done = subprocess.run([str(c) for c in command], cwd=at, env={**self.env, "HOME": str(at), "TMPDIR": str(at), **env},
                                  capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        except subprocess.TimeoutExpired as why:
            return -1, f"it hangs: {why.stdout} {why.stderr}"
        return done.returncode, done.stdout + done.stderr

    def publish(self):
        m, auth = self.mirrors[0], {"Authorization": f"Bearer {self.token}"}
        for path, data in self.files.items():
            assert m.put(f"/models/me/gpt/{path}", data, token=self.token).status == 201
        name, data = self.wheel
        kind, body = form(fields(name, data, "demo", "1.0"))
        assert m.put("/models/legacy/", body, method="POST", headers={**auth, "Content-Type": kind}).status == 200
        layout(self.layers, {"a": os.urandom(3 << 20), "b": b"small"})
        if shutil.which("skopeo"):
            code, said = self.run(self.folder, "skopeo", "--policy", self.folder / "policy.json", "copy", "--dest-tls-verify=false",
                                  f"--dest-creds=anybody:{self.token}", f"oci:{self.layers}:latest", f"docker://127.0.0.1:{m.port}/models/me/app:v1")
            assert code == 0, said
        for other in self.mirrors:
            until(lambda o=other: o.get("/models/simple/demo/").status == 200)


# --- clients: each returns (exit code, what it said, whether its bytes are right) ---------------------------------------

def all_right(at, files):
    return all((at / path).is_file() and (at / path).read_bytes() == data for path, data in files.items())


def pip(w, at):
    code, said = w.run(at, "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--index-url", f"{w.url}/models/simple/", "-d", at / "got", "demo")
    return code, said, all_right(at / "got", dict([w.wheel]))


def uv(w, at):
    code, said = w.run(at, "uv", "pip", "install", "-q", "--no-deps", "--no-cache", "--index-url", f"{w.url}/models/simple/", "--target", at / "got",
                       "--python", "/usr/bin/python3", "demo")
    return code, said, (at / "got/demo.py").is_file()  # it checks the wheel's digest


def hf(w, at, **env):
    code, said = w.run(at, "hf", "download", "me/gpt", "--local-dir", at / "got", HF_HOME=str(at / "hf"), **env)
    return code, said, all_right(at / "got", w.files)


def hf_without_xet(w, at):
    return hf(w, at, HF_HUB_DISABLE_XET="1")


def skopeo(w, at):
    code, said = w.run(at, "skopeo", "--policy", w.folder / "policy.json", "copy", "-q", "--src-tls-verify=false",
                       f"docker://127.0.0.1:{w.port}/models/me/app:v1", "oci:got:latest")
    blobs = {p.name: p.read_bytes() for p in (at / "got/blobs/sha256").glob("*")} if code == 0 else {}
    return code, said, all(hashlib.sha256(d).hexdigest() == name for name, d in blobs.items()) and \
        {p.name for p in (w.layers / "blobs/sha256").iterdir()} <= set(blobs)


def curl(w, at):
    code, said = w.run(at, "curl", "-sS", "-f", "--retry", "8", "--retry-all-errors", "--retry-delay", "1", "-o", "got", f"{w.url}/models/me/gpt/part-0.bin")
    return code, said, all_right(at, {"got": w.files["part-0.bin"]})


def curl_of_an_origin(w, at):
    """An object that no mirror has, asked of all of them at once, without the balancer. The origin needs a second or two for it."""
    number = next(w.numbers)
    w.origin.put(f"/{number}.bin", size=COLD_BYTES, rate=COLD_RATE)
    w.cold.append(f"/{number}.bin")
    codes, threads = {}, []
    for i, m in enumerate(w.mirrors):
        command = ("curl", "-sS", "-f", "--retry", "20", "--retry-all-errors", "--retry-delay", "1", "-o", f"got{i}", m.url(f"/data/{number}.bin"))
        threads.append(threading.Thread(target=lambda i=i, command=command: codes.update({i: w.run(at, *command)})))
        threads[-1].start()
    for t in threads:
        t.join()
    code, said = max(codes.values())
    return code, said, all_right(at, {f"got{i}": span(1, 0, COLD_BYTES) for i in codes})


def trainagent(w, at, mirrors=None):
    """A node of its own each time: nothing is in its local cache."""
    node = Agent(at / "node", types.SimpleNamespace(token=lambda *_: w.token, url=lambda path: f"{w.url}{path}"))
    child = node.start("pull", "models/me/gpt", "--to", at / "got", **({"TRAINAGENT_MIRROR": mirrors} if mirrors else {}))
    out, err = child.communicate(timeout=PATIENCE_S)
    return child.returncode, out + err, all_right(at / "got", w.files)


def trainagent_with_a_list(w, at):
    """It needs no balancer."""
    return trainagent(w, at, ",".join(m.url("") for m in w.mirrors))


# --- clients that publish: what they say is done must be there at the end ------------------------------------------------

def hf_upload(w, at):
    number = next(w.numbers)
    files = {"large.bin": os.urandom(12 << 20), "small.json": os.urandom(1000)}
    for name, data in files.items():
        (at / name).write_bytes(data)
    code, said = w.run(at, "hf", "upload", f"me/hf{number}", at, ".", "--exclude", "hf/*", HF_HOME=str(w.folder / "hf"), HF_TOKEN=w.token)
    if code == 0:
        w.published.update({f"/models/me/hf{number}/{name}": data for name, data in files.items()})
    return code, said, True


def skopeo_push(w, at):
    name, layer = f"models/me/push{next(w.numbers)}", os.urandom(2 << 20)
    layout(at / "img", {"a": layer})
    code, said = w.run(at, "skopeo", "--policy", w.folder / "policy.json", "copy", "-q", "--dest-tls-verify=false", f"--dest-creds=anybody:{w.token}",
                       f"oci:{at}/img:latest", f"docker://127.0.0.1:{w.port}/{name}:v1")
    if code == 0:
        w.published.update({f"/v2/{name}/blobs/sha256:{b.name}": b.read_bytes() for b in (at / "img/blobs/sha256").iterdir()
                            if not b.read_bytes().startswith(b'{"schemaVersion"')})
    return code, said, True


def twine(w, at):
    name, data = wheel("other", f"1.{next(w.numbers)}", files={"other_data.bin": os.urandom(500_000)})
    (at / name).write_bytes(data)
    code, said = w.run(at, "twine", "upload", "--non-interactive", "--disable-progress-bar", "--repository-url", f"{w.url}/models/legacy/", at / name,
                       TWINE_USERNAME="__token__", TWINE_PASSWORD=w.token)
    if code == 0:
        w.published[f"/models/simple/other/{name}"] = data
    return code, said, True


AGENTS = {"trainagent": trainagent, "trainagent with a list": trainagent_with_a_list}
CLIENTS = {"pip": pip, "uv": uv, "hf": hf, "hf without Xet": hf_without_xet, "skopeo": skopeo, "curl --retry": curl,
           "curl --retry of an origin": curl_of_an_origin, "hf upload": hf_upload, "skopeo push": skopeo_push, "twine": twine, **AGENTS}


class Load:
    def __init__(self, w):
        self.w, self.ending, self.lock = w, threading.Event(), threading.Lock()
        self.counts = {name: collections.Counter() for name in CLIENTS}
        self.said, self.acknowledged, self.puts, self.failure = {}, {}, collections.Counter(), None

    def guarded(self, run, *args):
        try:
            run(*args)
        except Exception as why:
            self.failure = self.failure or why
            raise

    def one(self, name):
        at = self.w.place()
        code, said, right = CLIENTS[name](self.w, at)
        what = "wrong" if code == 0 and not right else "right" if code == 0 else "failed"
        with self.lock:
            self.counts[name][what] += 1
            if what != "right":
                self.said.setdefault(name, []).append(f"{what}, exit {code}: {said[-1500:]}")
        shutil.rmtree(at, ignore_errors=True)
        return what

    def pull(self, names):
        for name in itertools.cycle(names):
            if self.ending.is_set():
                return
            self.one(name)

    def upload(self, number):
        """As a script would: until it is answered. What was answered with 201 must be there."""
        dice = random.Random(number)
        for i in itertools.count():
            data = dice.randbytes(dice.choice((100, 50_000, 2_000_000)))
            path = f"/models/me/up{number}/{i}"
            while not self.ending.is_set():
                status = self.put(path, data)
                self.puts[status] += 1
                if status in (200, 201):
                    self.acknowledged[path] = data
                    break
                time.sleep(0.2)
            if self.ending.is_set():
                return

    def put(self, path, data):
        c = http.client.HTTPConnection("127.0.0.1", self.w.port, timeout=60)
        try:
            c.request("PUT", path, body=data, headers={"Authorization": f"Bearer {self.w.token}"})
            return c.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            c.close()

    def run(self, names, kills, dice):
        """trainagent, with the balancer and without, and one upload run all the time; the others take turns in two lines."""
        others = [n for n in names if n not in AGENTS]
        threads = [threading.Thread(target=self.guarded, args=args) for args in
                   ((self.pull, others[::2]), (self.pull, others[1::2]), *((self.pull, [n]) for n in AGENTS), (self.upload, 0))]
        for t in threads:
            t.start()
        try:
            for _ in range(kills):
                time.sleep(dice.uniform(2, 4))
                m = dice.choice(self.w.mirrors)
                m.kill()
                time.sleep(dice.uniform(0, 1))
                m.start()
        finally:
            self.ending.set()
            for t in threads:
                t.join()
        if self.failure:
            raise self.failure


@pytest.fixture
def world(mirrord, client, tmp_path):
    with Bucket() as bucket, Origin() as origin, Balancer(client("haproxy"), tmp_path) as balancer:
        secret = bucket.secret_file(tmp_path)
        keys, mirrors = bucket.keys_file(tmp_path), []
        for _ in range(3):
            port = free_port()
            mirrors.append(mirrord(f'''
                repo "models" {{ protocol = "hosted" xet = "on" }} trusted_proxies = {{"127.0.0.1"}}
                repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}
                listen "127.0.0.1:{port}" {{ }}
                cluster "{bucket.url}" {{ {bucket.access(keys)}
                    secret = "file:{secret}" address = "http://127.0.0.1:{port}" }}'''))
        token = mirrors[0].token("ci", "publish:models/*")
        port, _ = balancer.start([m.port for m in mirrors], plain=True)
        w = World(mirrors, port, token, tmp_path, origin)
        until(lambda: all(m.put("/models/ready/t/x", os.urandom(8), token=token).status in (200, 201) for m in mirrors))
        w.publish()
        yield w


def there(name):
    program = {"hf without Xet": "hf", "curl --retry": "curl", "curl --retry of an origin": "curl", "hf upload": "hf", "skopeo push": "skopeo",
               "trainagent with a list": "trainagent"}.get(name, name)
    return shutil.which(program, path=f"{BUILD}:{VENV}/bin:/usr/bin") is not None


def test_mirrors_that_are_killed_under_load(world):
    names = [n for n in CLIENTS if there(n)]
    load = Load(world)
    for name in names:
        until(lambda n=name: load.one(n) == "right", limit_s=60)
    load.counts = {name: collections.Counter() for name in names}
    load.said.clear()
    load.run(names, KILLS, random.Random(int(os.environ.get("MIRROR_SEED", "1"))))
    pulls = {name: dict(c) for name, c in load.counts.items()}
    fetched = [world.origin.stats(path).bytes / COLD_BYTES for path in world.cold]
    figures = (f"{KILLS} kills; pulls: {pulls}; uploads acknowledged: {len(load.acknowledged)}, statuses {dict(load.puts)}; "
               f"origin: {len(fetched)} cold objects, {sum(f > 1 for f in fetched)} of them with a kill in mid-fetch, {sum(fetched) / len(fetched):.2f} x")
    print(figures)
    pathlib.Path(os.environ.get("MIRROR_REPORT", world.folder / "report")).write_text(figures + "\n" + "\n".join(
        f"{name}: {line}" for name, lines in load.said.items() for line in lines) + "\n")
    assert not any(c["wrong"] for c in load.counts.values()), (figures, load.said)
    assert not any(load.counts[name]["failed"] for name in AGENTS), (figures, load.said)
    assert all(load.counts[name]["right"] for name in AGENTS) and load.acknowledged, figures
    assert sum(fetched) - len(fetched) <= KILLS, (figures, fetched)  # a kill loses what was in flight, of one object
    for name in names:  # all comes back by itself
        until(lambda n=name: load.one(n) == "right", limit_s=60)
    for m in world.mirrors:
        for path, data in [*load.acknowledged.items(), *world.published.items()]:
            until(lambda m=m, path=path, data=data: m.get(path).body == data)
        m.ctl("verify", "--deep")


def test_drained_and_stopped_behind_haproxy(world):
    """A rolling restart: no request fails, new connections and uploads included."""
    load, ending = Load(world), threading.Event()
    statuses = collections.Counter()

    def client(number):
        for i in itertools.count():
            if ending.is_set():
                return
            statuses[load.put(f"/models/me/rolling{number}/{i}", b"x" * 1000)] += 1
    threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()

    def taken(m):
        return len(m.answered("/models/me/rolling", least=0, method="PUT"))
    for m in world.mirrors:
        m.ctl("cluster", "drain")
        m.stop()
        before = taken(m)
        m.start()
        until(lambda m=m, n=before: taken(m) > n + 10)  # HAProxy has taken it in again
    ending.set()
    for t in threads:
        t.join()
    assert set(statuses) == {201}, statuses
