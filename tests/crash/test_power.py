"""Power cuts: mirrord works on a disk that keeps nothing but what was synced, and is started on what is left.

recorder.c notes every change of the state folder while clients upload, fetch, delete, make and revoke tokens; power.py makes
of that what a disk may hold at some instant. There, without repair, mirrord must come up, a deep verify find nothing but
orphans, all that was answered before the instant be there, nothing that was taken away before it come back, and every
byte served be the right one. The next round works on the leavings of the last cut. POWER_CUTS=300 for a long run.
"""
import hashlib
import http.client
import os
import random
import shutil
import subprocess
import threading
import time

import pytest

from harness import publishers
from harness.hub import Hub
from harness.mirrord import BUILD, SLOW, until
from power import RENAME, UNLINK, Disk, Kept, records

pytestmark = pytest.mark.skipif(SLOW > 1, reason="a sanitizer's runtime must come first")
CUTS = int(os.environ.get("POWER_CUTS", "8"))
SEED = int(os.environ.get("SEED", str(random.randrange(1 << 30))))
CUTS_A_ROUND = 4
ROUNDS_A_WORLD = 6
ROUND_S = 2.5
RECORDER = BUILD / "crash" / "recorder.so"
OBJECTS = 40
SIZES = [700, 20 << 10, 40 << 10, 400 << 10, 3 << 20]
LARGE = 64 << 20  # from here on what came of a broken transfer is kept, up to a tenth of the quota, and resumed
POOL = [random.Random(i).randbytes(n) for i, n in enumerate([500, 20000, 40000, 300000, 1 << 20])]
CONFIG = """log_level = "warn"
storage {{ quota = "{quota}" reserve = "1m" {marks} }}
cache {{ tries = 2 }}
repo "data" {{ protocol = "generic" origin = "{origin}/" rule '.' {{ class = immutable }} }}
repo "models" {{ protocol = "hosted" }}"""


def digest(data):
    return hashlib.sha256(data).hexdigest()


def fresh_bytes(rng):
    """Few of them are files of their own: uploads are never evicted, and a long run makes many."""
    return rng.randbytes(rng.choice((300, 300, 300, 5000, 40000)))


class Thing:
    """Something with one writer at a time: what it was at the last cut, and what was asked for since."""

    def __init__(self):
        self.settled = None  # the digest of a file, True for a token; None: not there
        self.asked = []      # [began, answered or None, value]; times are sizes of the log

    def possible(self, cut):
        answered = [i for i, (_, end, _) in enumerate(self.asked) if end is not None and end <= cut]
        first = answered[-1] if answered else -1
        sure = self.asked[first][2] if answered else self.settled
        return {sure} | {value for began, _, value in self.asked[first + 1:] if began < cut}


class World:
    """What must be found again, and the clients that make it. One client is the only writer of its things."""

    def __init__(self, origin, log):
        self.origin, self.log = origin, log
        self.files = {}    # path -> Thing
        self.trees = []    # groups of paths: all or none
        self.tokens = {}
        self.half = {}     # of this round: path of a file half uploaded -> (bytes, when its first half was answered)
        self.wrong = []
        for i in range(OBJECTS):
            origin.put(f"/{i}", size=SIZES[i % len(SIZES)] + i, seed=i + 1)
        origin.put("/large", size=LARGE, wall_at=5 << 20)

    def origin_is(self, slow, broken):
        for i, thing in enumerate(self.origin.things.values()):
            thing.rate = 4 << 20 if slow and i % 2 else 0
            thing.times = 1 << 30 if broken else 0

    def now(self):
        return self.log.stat().st_size

    def load(self, m, token, seed):
        """Runs all clients until stop is called."""
        self.origin_is(slow=True, broken=True)
        over = threading.Event()

        def run(client, seed):
            rng, again = random.Random(seed), True
            while not over.is_set() and again:
                try:
                    again = client(m, token, rng, seed) is not False
                except (OSError, http.client.HTTPException):
                    time.sleep(0.02)
                except Exception as why:  # a mistake of the test must not look like silence
                    self.wrong.append(repr(why))
                    return

        clients = (self.fetch, self.fetch, self.fetch_large, self.put, self.upload, self.upload_half, self.publish, self.make_tokens)
        threads = [threading.Thread(target=run, args=(c, seed + i)) for i, c in enumerate(clients)]
        for t in threads:
            t.start()

        def stop():
            over.set()
            for t in threads:
                t.join()
        return stop

    # --- the clients ---

    def fetch(self, m, token, rng, me):
        path = f"/{rng.randrange(OBJECTS)}"
        status, _, body = ask(m, "GET", "/data" + path)
        if status == 200 and body != self.origin.bytes_of(path):
            self.wrong.append(f"{path}: wrong bytes, before any cut")

    def fetch_large(self, m, token, rng, me):
        """Once a round, anew or from where it is; breaks off in the middle and is kept as a part."""
        if rng.random() < 0.5:
            m.ctl("cache", "rm", "data/large", check=False)
        ask(m, "GET", "/data/large")
        return False

    def change(self, thing, value, do):
        entry = [self.now(), None, value]
        thing.asked.append(entry)
        if do() in (200, 201, 204):
            entry[1] = self.now()

    def put(self, m, token, rng, me):
        """Few paths: most of it replaces or deletes."""
        path = f"/models/me/c{me % 7}/{rng.randrange(8)}"
        thing = self.files.setdefault(path, Thing())
        if rng.random() < 0.2:
            self.change(thing, None, lambda: ask(m, "DELETE", path, token=token)[0])
        else:
            data = rng.choice(POOL) if rng.random() < 0.7 else fresh_bytes(rng)
            self.change(thing, digest(data), lambda: ask(m, "PUT", path, data, token)[0])

    def open_upload(self, m, token, tree):
        status, fields, _ = ask(m, "POST", tree + "/-/uploads", b"", token)
        return fields["Location"][fields["Location"].index("/models/"):] if status == 201 else None

    def upload(self, m, token, rng, me):
        """A tree of three files, all or none."""
        tree = f"/models/me/set{rng.randrange(1 << 40)}"
        where = self.open_upload(m, token, tree)
        files = {f"{tree}/{i}": rng.choice(POOL) if i else fresh_bytes(rng) for i in range(3)}
        if where is None or not all(ask(m, "PUT", where + p[len(tree):], d, token)[0] == 201 for p, d in files.items()):
            return
        self.bring(files, lambda: ask(m, "POST", where + "/commit", b"", token)[0] == 201)

    def bring(self, files, commit):
        """All of these are there from now on, or none."""
        began, things = self.now(), {p: Thing() for p in files}
        for p, d in files.items():
            things[p].asked.append([began, None, digest(d)])
        self.files.update(things)
        self.trees.append(list(files))
        if commit():
            for t in things.values():
                t.asked[0][1] = self.now()

    def publish(self, m, token, rng, me):
        """As clients of a registry, of a package index and of a Hub do it."""
        def send(method, path, body, headers):
            return ask(m, method, path, body, token, **headers)
        number = rng.randrange(1 << 40)
        made = rng.choice((
            lambda: publishers.image(send, f"image{number}", fresh_bytes(rng), b"{%d}" % number),
            lambda: publishers.python(send, f"demo{number % 3}", f"1.{number}", fresh_bytes(rng)),
            lambda: publishers.hub(send, f"hub{number}", fresh_bytes(rng), b"%d" % number)))()
        if made:
            self.bring(*made)

    def upload_half(self, m, token, rng, me):
        """Left in the middle: to be gone on with after the cut."""
        where = self.open_upload(m, token, f"/models/me/half{rng.randrange(1 << 40)}")
        data = rng.randbytes(600000)
        if where and ask(m, "PUT", where + "/f", data[:300000], token, **{"Content-Range": "bytes 0-299999/600000"})[0] == 308:
            self.half[where] = (data, self.now())
        time.sleep(0.3)

    def make_tokens(self, m, token, rng, me):
        name = f"t{rng.randrange(4)}"
        thing = self.tokens.setdefault(name, Thing())
        there = thing.asked[-1][2] if thing.asked else thing.settled
        words = ["revoke", name] if there else ["create", "--name", name, "--scope", "read:models/*"]
        self.change(thing, None if there else True, lambda: 200 if m.ctl("token", *words, check=False).returncode == 0 else 500)
        time.sleep(0.1)

    # --- after the cut ---

    def check(self, m, token, cut):
        """Complaints; and what is there now, by thing."""
        bad, found = list(self.wrong), {}
        for path, thing in self.files.items():
            status, _, body = ask(m, "GET", path)
            found[path] = digest(body) if status == 200 else None if status in (401, 404) else f"status {status}"  # 401: a blob of nobody's
            if found[path] not in thing.possible(cut):
                bad.append(f"{path} is {found[path]}, not one of {thing.possible(cut)}")
        for tree in self.trees:
            if len({found[p] is None for p in tree}) == 2:
                bad.append(f"{tree[0]}: half a commit")
        names = {t["name"] for t in m.ctl_json("token", "ls")}
        for name, thing in self.tokens.items():
            found[name] = True if name in names else None
            if found[name] not in thing.possible(cut):
                bad.append(f"token {name} is {found[name]}, not one of {thing.possible(cut)}")
        for where, (data, answered) in self.half.items():
            if answered <= cut:
                bad += self.go_on(m, token, where, data)
        self.origin_is(slow=False, broken=False)
        for path in self.origin.things:
            status, _, body = ask(m, "GET", "/data" + path)
            if status != 200 or body != self.origin.bytes_of(path):
                bad.append(f"{path}: {status}, {len(body)} bytes, not those of the origin")
        return bad, found

    @staticmethod
    def go_on(m, token, where, data):
        """An upload may be lost, but what is said to be there is there."""
        status, fields, _ = ask(m, "HEAD", where + "/f", token=token)
        if status == 404:
            return []
        if status != 200:
            return [f"{where}: HEAD {status} {dict(fields)}"]
        at = int(fields["Upload-Offset"])
        part = {"Content-Range": f"bytes {at}-{len(data) - 1}/{len(data)}"}
        status, _, body = ask(m, "PUT", where + "/f", data[at:], token, **part)
        done, _, _ = ask(m, "POST", where + "/commit", b"", token)
        got = ask(m, "GET", where[:where.index("/-/")] + "/f")[2]
        return [] if done == 201 and got == data else [f"{where}: gone on at {at}: {status} {body}, {done}, {len(got)} bytes"]

    def answered(self):
        return sum(end is not None for t in [*self.files.values(), *self.tokens.values()] for _, end, _ in t.asked)

    def settle(self, found):
        for name, thing in [*self.files.items(), *self.tokens.items()]:
            thing.settled, thing.asked = found[name], []
        self.trees.clear()
        self.half.clear()


def ask(m, method, path, body=None, token=None, **headers):
    """(status, headers, body); status 0 when the answer broke off."""
    c = http.client.HTTPConnection("127.0.0.1", m.port, timeout=60 * SLOW)
    try:
        c.request(method, path, body, dict(headers, Authorization=f"Bearer {token}") if token else headers)
        r = c.getresponse()
        try:
            return r.status, r.headers, r.read()
        except http.client.IncompleteRead as cut:
            return 0, r.headers, cut.partial
    finally:
        c.close()


def cuts_of(log, world, rng):
    """Instants, in order: anywhere, just after an answer, just after a name went (what allows that must be safe by then)."""
    changes = list(records(memoryview(log.read_bytes())))
    gone = [(r, after.at) for r, after in zip(changes, changes[1:]) if r.op in (UNLINK, RENAME)]
    kinds = ([r.at for r in changes],
             [end for t in [*world.files.values(), *world.tokens.values()] for _, end, _ in t.asked if end is not None],
             [at for r, at in gone if r.first.startswith("blobs/")],
             [at for r, at in gone if not r.first.startswith("blobs/")])
    assert kinds[0] and kinds[1], "the load did nothing: this run shows nothing"
    kinds = [k for k in kinds if k]
    return sorted(rng.choice(rng.choice(kinds)) for _ in range(CUTS_A_ROUND))


@pytest.fixture
def recorded(mirrord, origin, tmp_path):
    """recorded(state) is a mirrord whose changes go to tmp_path/record; recorded(state, False) one on a disk as usual."""
    def start(state, record=True):
        # Eviction begins below the size of all objects: clients that fill the quota with uploads need a minute for it.
        config = CONFIG.format(origin=origin.url, quota="88m" if record else "1g", marks="high = 25% low = 20%" if record else "")
        command = ["env", f"LD_PRELOAD={RECORDER}", f"RECORD_ROOT={os.path.realpath(state)}", f"RECORD_LOG={tmp_path}/record",
                   "RECORD_SYNC_US=4000"] if record else []
        return mirrord(config, state=state, command=command)
    return start


@pytest.mark.timeout(0)
def test_power_cuts(recorded, origin, tmp_path):
    rng = random.Random(SEED)
    print(f"SEED={SEED} POWER_CUTS={CUTS}")
    state, log, done, answered, evicted = tmp_path / "state", tmp_path / "record", 0, 0, 0
    while done < CUTS:
        world, token = World(origin, log), None  # anew from time to time: uploads are never evicted
        fresh(state)
        for _ in range(ROUNDS_A_WORLD):
            disk = Disk().scan(state)
            log.write_bytes(b"")
            m = recorded(state)
            first = 0
            if token is None:
                token = m.token("load", "publish:models/*", "read:models/*")
                first = world.now()  # without it there is nothing to look at
            stop = world.load(m, token, rng.randrange(1 << 30))
            evicted += work(m)
            m.stop() if rng.random() < 0.5 else m.kill()
            stop()
            answered += world.answered()
            disk.open(log)
            for cut in cuts_of(log, world, rng):
                cut = max(cut, first)
                disk.play(cut)
                how, lot = rng.choice(list(Kept)), rng.randrange(1 << 30)
                where = f"SEED={SEED} cut={done + 1} at {cut}, kept {how.name}"
                disk.image(fresh(tmp_path / "image"), how, random.Random(lot))
                found = start_again(recorded(tmp_path / "image", False), world, token, cut, where)
                done += 1
            # The last cut's leavings once more: the next round works on them, and records how they are taken up.
            disk.image(fresh(state), how, random.Random(lot))
            world.settle(found)
            if done >= CUTS:
                break
    print(f"{done} cuts, {answered} answered changes, {evicted:.0f} evictions, {log.stat().st_size >> 20} MiB in the last record")
    assert evicted, "nothing was evicted: this run shows less than it should"


def test_cut_while_the_store_is_made(recorded, tmp_path):
    """The very first start: whatever is there of the store, the next start makes the rest."""
    rng, state, log = random.Random(SEED), tmp_path / "state", tmp_path / "record"
    disk = Disk().scan(fresh(state))
    recorded(state).stop()
    disk.open(log)
    for cut in sorted(rng.choice([r.at for r in records(disk.view)]) for _ in range(CUTS)):
        disk.play(cut)
        how = rng.choice(list(Kept))
        disk.image(fresh(tmp_path / "image"), how, rng)
        m = recorded(tmp_path / "image", False)
        assert m.ctl("verify", "--deep", check=False).returncode == 0, f"SEED={SEED} cut at {cut}, kept {how.name}"
        m.stop()


@pytest.mark.parametrize("closed", ["private", "gone"])
def test_a_bucket_that_was_closed_stays_closed(mirrord, tmp_path, closed):
    """The mirror has heard that a bucket is closed, and said so. Whatever of that was on the disk when the power went: with a Hub that is
    silent since, nobody is given it as open, neither its listings nor its bytes."""
    rng, state, log = random.Random(SEED), tmp_path / "state", tmp_path / "record"
    disk = Disk().scan(fresh(state))
    ways = ("/hf/api/buckets/org/data", "/hf/api/buckets/org/data/tree?recursive=true", "/hf/buckets/org/data/resolve/a.txt")
    with Hub() as hub:
        hub.bucket("org/data", {"a.txt": b"S3CRET"})
        config = hub.config(more="rule '^(api|buckets)' { ttl = 1s sie = 365d }")
        m = mirrord(config, state=state, command=["env", f"LD_PRELOAD={RECORDER}", f"RECORD_ROOT={os.path.realpath(state)}", f"RECORD_LOG={log}",
                                                  "RECORD_SYNC_US=4000"])
        until(lambda: all(ask(m, "GET", way)[0] == 200 for way in ways))
        m.settle()
        opened = log.stat().st_size
        if closed == "private":
            hub.buckets["org/data"].private = True
        else:
            del hub.buckets["org/data"]
        until(lambda: all(ask(m, "GET", way)[0] in (401, 404) for way in ways))
        said = log.stat().st_size
        m.stop()
        hub.down()
        disk.open(log)
        later = [r.at for r in records(disk.view) if r.at >= said]
        assert any(opened <= r.at < said for r in records(disk.view)), "what was heard left no trace"
        for cut in sorted({said, *rng.sample(later, min(2, len(later)))}):
            disk.play(cut)
            how = rng.choice(list(Kept))
            disk.image(fresh(tmp_path / "image"), how, rng)
            again = mirrord(config, state=tmp_path / "image")
            for way in ways:
                status, _, body = ask(again, "GET", way)
                assert status >= 400 and b"S3CRET" not in body, f"SEED={SEED} cut at {cut} of {said}, kept {how.name}: {way} {status}"
            again.stop()


def work(m):
    """Until room had to be made, however slow the machine; returns how often."""
    began, evicted = time.monotonic(), 0
    while time.monotonic() < began + ROUND_S or (not evicted and time.monotonic() < began + 20 * ROUND_S):
        time.sleep(0.2)
        evicted = m.metric("mirrord_cache_evictions_total")
    return evicted


def start_again(m, world, token, cut, where):
    verify = m.ctl("verify", "--deep", check=False)
    assert verify.returncode == 0, f"{where}: {verify.stdout}{verify.stderr}\n{m.log()[-2000:]}"
    bad, found = world.check(m, token, cut)
    assert not bad, f"{where}: {bad[:5]}"
    m.stop()
    return found


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def test_the_record_is_true(recorded, origin, tmp_path):
    """What the log says was done is what is there: nothing went past the recorder."""
    state, log = tmp_path / "state", tmp_path / "record"
    state.mkdir()
    world = World(origin, log)
    log.write_bytes(b"")
    disk = Disk().scan(state)
    m = recorded(state)
    stop = world.load(m, m.token("load", "publish:models/*"), SEED)
    time.sleep(1.5)
    stop()
    m.stop()
    disk.open(log)
    disk.play()
    image = fresh(tmp_path / "image")
    disk.image(image, Kept.ALL)
    same = subprocess.run(["diff", "-r", "-x", "LOG*", state, image], capture_output=True, text=True, check=False)
    assert same.returncode == 0, f"SEED={SEED}: {same.stdout[-2000:]}"
