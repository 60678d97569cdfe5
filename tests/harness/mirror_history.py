"""mirror_history.py - clients of the mirrors of a cluster, and the judgement on all that they were told.

Each client publishes its own file of some trees, over and over: a value is "<client> <number>" and is never published twice. Its lines are
dicts, with the monotonic clock of the one machine at their begin and end, t0 and t1:

  put    value, tree, node; what: ok (with the version), no, unknown
  read   tree, node; version, root, and what each client's file was by its digest. confirmed: before, the mirror said that it had then
         all that was acknowledged before this time
  use    of a token, which had been revoked on a mirror: whether it was accepted

The log in the bucket has the root of each version of each tree, in their order; a mirror that had no part in anything lists what each
version has. From these two everything else is judged.
"""
import bisect
import hashlib
import http.client
import json
import random
import re
import threading
import time

from harness import history

SNAP = 2  # the number of its table in the log
LIMIT_S = 30  # of a request. What takes longer has an unknown outcome


class Log(history.Log):
    """versions: tree -> version -> (seq, root)."""

    def __init__(self, objects):
        self.versions = {}
        super().__init__(objects)

    def put(self, seq, table, key, value):
        if table != SNAP:
            return
        repo, tree, reverse = key.split(b"\0", 2)
        assert repo == b"models"
        tree, number, root = tree.decode(), 2**64 - 1 - int.from_bytes(reverse, "big"), value[1:33].hex()
        versions = self.versions.setdefault(tree, {})
        if number not in versions:  # a label writes the row again
            if number != len(versions) + 1:
                raise history.Broken(f"entry {seq} has version {number} of {tree} after {len(versions)}")
            versions[number] = (seq, root)
        elif versions[number][1] != root:
            raise history.Broken(f"entry {seq} has other files for version {number} of {tree}")


class Line:
    """A connection to a mirror, which is opened again when it has broken."""

    def __init__(self, mirror):
        self.mirror, self.connection = mirror, None

    def request(self, method, path, body=None, **fields):
        """(status, body). ConnectionRefusedError: it was not sent. OSError and HTTPException: maybe it was."""
        if self.connection is None:
            connection = http.client.HTTPConnection(self.mirror.host, self.mirror.port, timeout=LIMIT_S)
            try:
                connection.connect()
            except OSError as why:
                raise ConnectionRefusedError(str(why)) from why
            self.connection = connection
        try:
            self.connection.request(method, path, body=body, headers={n.replace("_", "-"): v for n, v in fields.items()})
            response = self.connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.connection = None
            raise
        if response.will_close:
            self.connection.close()
            self.connection = None
        return response.status, data


def digest_of(value):
    return hashlib.sha256(value.encode()).hexdigest()


class History:
    """mirrors: of the cluster, each with `host`. token: with the right to publish. At its end, lines has all that happened."""

    def __init__(self, mirrors, token, trees=4, clients_each=2, seed=1):
        self.mirrors, self.token, self.trees, self.lines = mirrors, token, [f"me/t{i}" for i in range(trees)], []
        self.ending, self.published, self.crossed = threading.Event(), 0, [0, 0]
        self.failure = None
        self.threads = [threading.Thread(target=self.guarded, args=(self.run_client, n, n % len(mirrors), random.Random(seed * 1000 + n)))
                        for n in range(clients_each * len(mirrors))]

    def guarded(self, run, *args):
        try:
            run(*args)
        except Exception as why:  # a mistake of the harness must not look like a quiet client
            self.failure = self.failure or why
            raise

    def add(self, run, *args):
        self.threads.append(threading.Thread(target=self.guarded, args=(run, *args)))

    def start(self):
        for t in self.threads:
            t.start()

    def end(self):
        self.ending.set()
        for t in self.threads:
            t.join()
        if self.failure:
            raise self.failure

    # --- clients ---

    def run_client(self, number, home, dice):
        """It stays at one mirror for most of the time. Its clock is that of its requests, so it needs no pauses."""
        lines, count, roots = [Line(m) for m in self.mirrors], 0, {}
        while not self.ending.is_set():
            node = home if dice.random() < 0.8 else dice.randrange(len(lines))
            tree = dice.choice(self.trees)
            if dice.random() < 0.6:
                count += 1
                self.put(lines[node], node, tree, number, count, roots.get(tree) if dice.random() < 0.3 else None)
            else:
                self.read(lines[node], node, tree, number, roots, dice.random() < 0.3)

    def put(self, line, node, tree, client, count, root):
        value = f"{client} {count}"
        o = {"t": "put", "v": value, "tree": tree, "node": node, "client": client, "t0": time.monotonic(), "what": "unknown"}
        fields = {"Authorization": f"Bearer {self.token}", **({"If_Match": f'"{root}"'} if root else {})}
        self.lines.append(o)  # also if this program is killed
        try:
            status, body = line.request("PUT", f"/models/{tree}/c{client}", value, **fields)
        except ConnectionRefusedError:
            o["what"] = "no"
            time.sleep(0.1)
        except (OSError, http.client.HTTPException):
            pass
        else:
            o["status"] = status
            if status in (200, 201):
                o["version"], o["what"] = version_of(json.loads(body)), "ok"
                self.published += 1
            elif 400 <= status < 500 or b"cannot be written now" in body or b"which tokens were revoked" in body:
                o["what"] = "no"
            o["said"] = "" if o["what"] == "ok" else body.decode(errors="replace")[:200]
        o["t1"] = time.monotonic()
        if o["what"] in ("no", "unknown"):
            time.sleep(0.02)

    def read(self, line, node, tree, client, roots, confirm):
        o = {"t": "read", "tree": tree, "node": node, "client": client}
        try:
            if confirm:
                asked = time.monotonic()
                status, body = line.request("GET", "/metrics")
                found = re.search(rb"^mirrord_cluster_lag_seconds(?:{[^}]*})? (\S+)$", body, re.M)
                o["confirmed"] = asked - float(found[1]) - 0.002  # it is rounded to milliseconds
            o["t0"] = time.monotonic()
            status, body = line.request("GET", f"/models/{tree}/?format=json")
        except (OSError, http.client.HTTPException):
            time.sleep(0.02)
            return
        o["t1"] = time.monotonic()
        if status == 200:
            o.update(state_of(json.loads(body)))
            roots[tree] = o["root"]
            self.lines.append(o)
        else:
            o["said"] = body.decode(errors="replace")[:200]
            self.lines.append({**o, "t": f"read {status}"})

    def count(self, kind, what=None):
        return sum(o["t"] == kind and what in (None, o.get("what")) for o in list(self.lines))


def version_of(said):
    return int(str(said["version"]).removeprefix("v"))


def state_of(listing):
    return {"version": version_of(listing), "root": listing["root"], "files": {e["path"]: e["sha256"] for e in listing["entries"]}}


# --- the judgement ---

class Judge:
    """log: Log. states: tree -> version -> (root, files). findings() is empty, or in words what is wrong."""

    def __init__(self, log, states, lines):
        self.log, self.states, self.bad = log, states, []
        self.puts = [o for o in lines if o["t"] == "put"]
        self.reads = sorted((o for o in lines if o["t"] == "read"), key=lambda o: o["t0"])
        self.value_of = {digest_of(o["v"]): o["v"] for o in self.puts}
        self.place = {}  # value -> (tree, version)

    def findings(self):
        for tree, versions in self.log.versions.items():
            if tree in self.states:
                self.follow(tree, versions)
        self.acknowledged()
        self.in_real_time()
        for o in self.reads:
            self.one_read(o)
        self.nothing_goes_back()
        self.fresh()
        return self.bad

    def follow(self, tree, versions):
        """Each version is the one before it and one value more."""
        before = {}
        for n, (seq, root) in sorted(versions.items()):
            said, files = self.states[tree].get(n, (None, {}))
            if said != root:
                self.bad.append(f"version {n} of {tree} has the root {said}, and {root} in entry {seq}")
            new = [path for path in files if files[path] != before.get(path)]
            gone = [path for path in before if path not in files]
            if len(new) != 1 or gone:
                self.bad.append(f"lost update: version {n} of {tree} changes {new} and lacks {gone}")
            for path in new:
                value = self.value_of.get(files[path])
                if value is None or f"c{value.split()[0]}" != path or value in self.place:
                    self.bad.append(f"version {n} of {tree} has {value} in {path}, which is nobody's or there twice")
                else:
                    self.place[value] = (tree, n)
            before = files

    def seq(self, value):
        tree, version = self.place[value]
        return self.log.versions[tree][version][0]

    def acknowledged(self):
        for o in self.puts:
            place = self.place.get(o["v"])
            if o["what"] == "ok" and place != (o["tree"], o["version"]):
                self.bad.append(f"lost: {o['v']} was acknowledged as version {o['version']} of {o['tree']}, and is {place}")
            elif o["what"] == "no" and place is not None:
                self.bad.append(f"refused but there: {o}")

    def oks(self):
        return [o for o in self.puts if o["what"] == "ok" and o["v"] in self.place]

    def in_real_time(self):
        """What was acknowledged stands before all that began later."""
        known = Tops((o["t1"], self.seq(o["v"])) for o in self.oks())
        for o in self.puts:
            if o["v"] in self.place and known.before(o["t0"]) > self.seq(o["v"]):
                self.bad.append(f"real time: {o['v']} stands before what was acknowledged before it began")

    def one_read(self, o):
        root, files = self.states[o["tree"]].get(o["version"], (None, None))
        if (o["root"], o["files"]) != (root, files):
            self.bad.append(f"no such state: {o['tree']} at version {o['version']} on mirror {o['node']}")

    def nothing_goes_back(self):
        newest = {}
        for o in self.reads:  # a client has one request at a time
            key = o["client"], o["node"], o["tree"]
            if o["version"] < newest.get(key, 0):
                self.bad.append(f"went back: {key} from version {newest[key]} to {o['version']}")
            newest[key] = max(o["version"], newest.get(key, 0))

    def fresh(self):
        """A mirror has what it has acknowledged, and what was acknowledged before the time that it names."""
        of_tree, of_node = {}, {}
        for o in self.oks():
            of_tree.setdefault(o["tree"], []).append((o["t1"], o["version"]))
            of_node.setdefault((o["tree"], o["node"]), []).append((o["t1"], o["version"]))
        of_tree = {k: Tops(v) for k, v in of_tree.items()}
        of_node = {k: Tops(v) for k, v in of_node.items()}
        for o in self.reads:
            mine = of_node[o["tree"], o["node"]].before(o["t0"]) if (o["tree"], o["node"]) in of_node else 0
            all_ = of_tree[o["tree"]].before(o["confirmed"]) if "confirmed" in o and o["tree"] in of_tree else 0
            if o["version"] < mine:
                self.bad.append(f"stale: mirror {o['node']} had version {o['version']} of {o['tree']} after it acknowledged {mine}")
            if o["version"] < all_:
                self.bad.append(f"stale: mirror {o['node']} had version {o['version']} of {o['tree']}, and said that it had {all_}")


class Tops:
    """before(t): the highest of the numbers whose time is before t; 0: there is none."""

    def __init__(self, pairs):
        pairs, top = sorted(pairs), 0
        self.times, self.tops = [t for t, _ in pairs], []
        for _, n in pairs:
            top = max(top, n)
            self.tops.append(top)

    def before(self, t):
        i = bisect.bisect_left(self.times, t)
        return self.tops[i - 1] if i else 0


def states_of(mirror, trees, log):
    """What a mirror says of every version."""
    line, states = Line(mirror), {}
    for tree in trees:
        for n in log.versions.get(tree, {}):
            status, body = line.request("GET", f"/models/{tree}@v{n}/?format=json")
            assert status == 200, (tree, n, status, body)
            s = state_of(json.loads(body))
            states.setdefault(tree, {})[n] = (s["root"], s["files"])
    return states
