"""SIGKILL at random instants under load: fills, ranges, eviction, uploads of all kinds. KILLS=200 for the full run (10 otherwise).

After each restart `mirrorctl verify` is clean (orphans it removes), what was committed is there, and every byte that was
ever served, also by an answer that was cut short, is the right one.
"""
import collections
import hashlib
import http.client
import os
import random
import re
import threading
import time

import pytest

from harness import publishers
from harness.mirrord import SLOW

KILLS = int(os.environ.get("KILLS", "10"))
SEED = int(os.environ.get("SEED", str(random.randrange(1 << 30))))
OBJECTS = 60
SIZES = [700, 30 << 10, 200 << 10, 2 << 20, 9 << 20]
# Uploads are never evicted, so most of them repeat these few; the fresh ones are small.
POOL = [random.Random(i).randbytes(n) for i, n in enumerate([500, 40000, 300000, 1 << 20] * 6)]


class Load:
    """Clients that never stop asking; each keeps what it must find again."""

    def __init__(self, m, origin, token):
        self.m, self.origin, self.token = m, origin, token
        self.stop = threading.Event()
        self.wrong = []
        self.served = 0       # answers that came whole
        self.committed = {}   # path -> bytes that must be there from now on
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(kind, SEED + i))
                        for i, kind in enumerate((self.get, self.get, self.ranged, self.put, self.upload,
                                                   self.image, self.python, self.hub))]

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *exc):
        self.stop.set()
        for t in self.threads:
            t.join()

    def run(self, kind, seed):
        rng = random.Random(seed)
        while not self.stop.is_set():
            try:
                kind(rng)
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)  # it is being killed, or comes up
            except Exception as why:  # a mistake of the test must not look like silence
                self.wrong.append(repr(why))
                return

    def request(self, method, path, body=None, headers=None):
        """(status, headers, bytes, whole); bytes are what came, also of an answer that broke off."""
        c = http.client.HTTPConnection("127.0.0.1", self.m.port, timeout=30 * SLOW)
        try:
            c.request(method, path, body, headers or {})
            r = c.getresponse()
            try:
                return r.status, r.headers, r.read(), True
            except http.client.IncompleteRead as cut:
                return r.status, r.headers, cut.partial, False
        finally:
            c.close()

    def note(self, fine, what):
        if not fine:
            self.wrong.append(what)

    def get(self, rng):
        path = f"/{rng.randrange(OBJECTS)}"
        status, _, body, whole = self.request("GET", "/data" + path)
        if status == 200:
            want = self.origin.bytes_of(path)
            self.note(want.startswith(body) and (not whole or body == want), f"GET {path}: wrong bytes")
            self.served += whole

    def ranged(self, rng):
        path = f"/{rng.randrange(OBJECTS)}"
        size = self.origin.stats(path).size
        first = rng.randrange(size)
        end = min(size, first + rng.randrange(1, 1 << 20))
        status, _, body, whole = self.request("GET", "/data" + path, headers={"Range": f"bytes={first}-{end - 1}"})
        if status == 206:
            want = self.origin.bytes_of(path, first, end)
            self.note(want.startswith(body) and (not whole or body == want), f"GET {path} {first}-{end}: wrong bytes")
            self.served += whole

    def publish(self, method, path, body, headers=None):
        status, fields, _, _ = self.request(method, path, body, dict(headers or {}, Authorization=f"Bearer {self.token}"))
        return status, fields

    @staticmethod
    def bytes_to_publish(rng):
        time.sleep(rng.uniform(0, 0.2))
        return rng.randbytes(rng.choice((500, 40000))) if rng.random() < 0.25 else rng.choice(POOL)

    def put(self, rng):
        data = self.bytes_to_publish(rng)
        path = f"/models/me/single/{rng.randrange(1 << 30)}"
        status, _ = self.publish("PUT", path, data)
        if status in (200, 201, 204):
            self.keep({path: data})

    def upload(self, rng):
        """A folder of files: all or none."""
        tree = f"/models/me/set{rng.randrange(1 << 30)}"
        status, fields = self.publish("POST", tree + "/-/uploads", b"")
        if status != 201:
            return
        where = fields["Location"]
        where = where[where.index("/models/"):]
        files = {f"{tree}/{i}": self.bytes_to_publish(rng) for i in range(3)}
        for path, data in files.items():
            status, _ = self.publish("PUT", where + path[len(tree):], data)
            if status not in (200, 201, 204):
                return
        status, _ = self.publish("POST", where + "/commit", b"")
        if status == 201:
            self.keep(files)

    def image(self, rng):
        self.bring(publishers.image(self.send, f"image{rng.randrange(1 << 30)}", self.bytes_to_publish(rng), b"{%d}" % rng.randrange(1 << 30)))

    def python(self, rng):
        """The project is one of a few, so that several write to one tree."""
        self.bring(publishers.python(self.send, f"demo{rng.randrange(3)}", f"1.{rng.randrange(1 << 30)}", self.bytes_to_publish(rng)))

    def hub(self, rng):
        self.bring(publishers.hub(self.send, f"hub{rng.randrange(1 << 30)}", self.bytes_to_publish(rng), rng.randbytes(100)))

    def send(self, method, path, body, headers):
        status, fields, got, whole = self.request(method, path, body, dict(headers, Authorization=f"Bearer {self.token}"))
        return status if whole else 0, fields, got

    def bring(self, made):
        if made and made[1]():
            self.keep(made[0])

    def keep(self, files):
        with self.lock:
            self.committed.update((path, hashlib.sha256(data).digest()) for path, data in files.items())

    def check_committed(self, rng, at_most):
        with self.lock:
            kept = list(self.committed.items())
        for path, digest in rng.sample(kept, min(len(kept), at_most)):
            status, _, body, whole = self.request("GET", path)
            self.note(status == 200 and whole and hashlib.sha256(body).digest() == digest,
                      f"{path}: committed, then {status} with {len(body)} bytes")


@pytest.mark.timeout(0)
def test_sigkill_at_random_instants(mirrord, origin):
    rng = random.Random(SEED)
    print(f"SEED={SEED} KILLS={KILLS}")
    for i in range(OBJECTS):
        origin.put(f"/{i}", size=SIZES[i % len(SIZES)] + i, seed=i + 1, rate=rng.choice((0, 0, 8 << 20)))
    # Small enough that eviction never rests: the objects are 135 MiB, uploads come on top.
    m = mirrord(f"""log_level = "warn"
        storage {{ quota = "96m" reserve = "16m" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}
        repo "models" {{ protocol = "hosted" }}""")
    with Load(m, origin, m.token("load", "publish:models/*")) as load:
        evicted = 0
        for turn in range(KILLS):
            time.sleep(rng.uniform(0.05, 1.2) * SLOW)
            evicted += m.metric("mirrord_cache_evictions_total")
            m.kill()
            m.start()
            done = m.ctl("verify", check=False)
            assert done.returncode == 0, f"after kill {turn + 1}, SEED={SEED}: {done.stdout}{done.stderr}"
            load.check_committed(rng, 10)
            assert not load.wrong, f"after kill {turn + 1}, SEED={SEED}: {load.wrong[:5]}"
    load.check_committed(rng, 1 << 30)
    done = m.ctl("verify", "--deep", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not load.wrong, f"SEED={SEED}: {load.wrong[:5]}"
    print(f"{load.served} answers, {len(load.committed)} files committed, {evicted:.0f} evictions")
    kinds = collections.Counter(re.search(r"single|set|image|simple|hub", path)[0] for path in load.committed)
    print(dict(kinds))
    assert load.served > KILLS and load.committed and evicted, "the load did nothing: this run shows nothing"
