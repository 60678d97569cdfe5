"""history.py - judges what the nodes of a cluster were told, against the log that they wrote.

The log is the order of all that happened, so judging is linear: no search. Nodes write lines of JSON (harness/cluster_node.c), each with
`at`, the monotonic clock of the one machine that all of them run on:

  inv      a publish of value v to a tree begins
  ok       it was acknowledged
  no       it was refused: it must never be seen
  unknown  nobody knows: it may be seen or not
  read     a node had n values in a tree, the last of them `last`, and had applied the log up to seq (which who reads through a store does
           not know: then only the tree is judged). `confirmed`: it says that it has all that was acknowledged before then
  own      at a start, a node's own row had the value v, "" for none
"""
import bisect
import hashlib
import json
import struct

PUT, DELETE, ABSENT, VALUE = 1, 2, 3, 4


class Broken(Exception):
    """The log itself is not what the nodes promise."""


def entry(raw):
    """(seq, digest before, own digest, author, batches) of bytes in the bucket; a batch is a list of (operation, table, key, value)."""
    if raw[:8] != b"mrdlog01" or hashlib.sha256(raw[:-32]).digest() != raw[-32:]:
        raise Broken("an entry is damaged")
    (seq,), before, author = struct.unpack(">Q", raw[8:16]), raw[16:48], raw[48:80]
    (count,), at, batches = struct.unpack(">I", raw[80:84]), 84, []
    while at < len(raw) - 32:
        (size,) = struct.unpack(">I", raw[at:at + 4])
        batches.append(steps(raw[at + 4:at + 4 + size]))
        at += 4 + size
    if len(batches) != count:
        raise Broken(f"entry {seq} has {len(batches)} batches and says {count}")
    return seq, before, raw[-32:], author, batches


def sealed(head):
    return head + hashlib.sha256(head).digest()


def steps(raw):
    at, out = 0, []
    while at < len(raw):
        op, table, nkey = struct.unpack(">BBH", raw[at:at + 4])
        key = raw[at + 4:at + 4 + nkey]
        at += 4 + nkey
        (nvalue,) = struct.unpack(">I", raw[at:at + 4])
        out.append((op, table, key, raw[at + 4:at + 4 + nvalue]))
        at += 4 + nvalue
    return out


class Log:
    """objects: (key, bytes) of log/0/, sorted, also those that were trimmed. void: seq -> digest that stands for the entry's.
    position: value -> seq. trees: number -> its values in order, each with its seq."""

    def __init__(self, objects, void=None):
        self.position, self.trees, self.length, rows, before = {}, {}, 0, {}, bytes(32)
        for n, (key, raw) in enumerate(objects, 1):
            if int(key.rpartition("/")[2]) != n:
                raise Broken(f"entry {n} is missing")
            if n in (void or {}):
                before, self.length = void[n], n
                continue
            seq, said, own, _, batches = entry(raw)
            if seq != n or said != before:
                raise Broken(f"entry {n} does not follow the one before it")
            before, self.length = own, n
            self.replay(n, [step for batch in batches for step in batch], rows)

    def replay(self, seq, batches, rows):
        for op, table, key, value in batches:
            have = rows.get((table, key))
            if (op == ABSENT and have is not None) or (op == VALUE and have != value):
                raise Broken(f"entry {seq} requires what is not so")
        for op, table, key, value in batches:
            if op == DELETE:
                rows.pop((table, key), None)
            elif op == PUT:
                rows[table, key] = value
                self.put(seq, table, key, value)

    def put(self, seq, _, key, value):
        """A row of harness/cluster_node.c."""
        version, _, name = value.decode().partition(" ")
        values = self.trees.setdefault(int(key), [])
        if int(version) != len(values) + 1 or name in self.position:
            raise Broken(f"entry {seq} publishes version {version} of tree {key} after {len(values)}")
        values.append((name, seq))
        self.position[name] = seq


def findings(log, lines):
    """What is wrong, in words; [] is what we want."""
    bad, began, tree_of, oks, newest = [], {}, {}, [], {}
    lines = sorted(lines, key=lambda o: o["at"])
    acknowledged = {}  # tree -> (when, the highest position so far), in order
    last_ok = {}  # client of a node -> the position of what it published last
    for o in lines:
        if o["t"] == "inv":
            began[o["v"]], tree_of[o["v"]] = o["at"], o["tree"]
        elif o["t"] == "ok":
            if o["v"] not in log.position:
                bad.append(f"lost: {o['v']} was acknowledged")
            else:
                seq = log.position[o["v"]]
                oks.append((o["at"], seq))
                of_tree = acknowledged.setdefault(tree_of[o["v"]], [])
                of_tree.append((o["at"], max(seq, of_tree[-1][1] if of_tree else 0)))
                last_ok[o["node"], o["client"]] = seq
        elif o["t"] == "no" and o["v"] in log.position:
            bad.append(f"refused but there: {o['v']}")
        elif o["t"] == "read":
            bad += read(log, o, newest)
        elif o["t"] == "own":
            bad += own(log, o, last_ok.get((o["node"], o["client"]), 0))
    tops, top = [], 0
    for _, seq in oks:
        top = max(top, seq)
        tops.append(top)
    times = [at for at, _ in oks]
    for v, at in began.items():  # in real time: what was acknowledged before it began stands before it
        i = bisect.bisect_left(times, at)
        if v in log.position and i and tops[i - 1] > log.position[v]:
            bad.append(f"real time: {v} stands before what was acknowledged before it began")
    everything = list(zip(times, tops))
    for o in lines:
        if o["t"] == "read":
            known = everything if "seq" in o else acknowledged.get(o["tree"], [])
            i = bisect.bisect_left(known, (o["confirmed"], 0))
            if i and known[i - 1][1] > position(log, o):
                bad.append(f"stale: a read of tree {o['tree']} at {position(log, o)} says that it has all up to {o['confirmed']}, "
                           f"and lacks entry {known[i - 1][1]}, acknowledged at {known[i - 1][0]}")
    return bad


def position(log, o):
    values = log.trees.get(o["tree"], [])
    return o["seq"] if "seq" in o else values[o["n"] - 1][1] if 0 < o["n"] <= len(values) else 0


def read(log, o, newest):
    values = log.trees.get(o["tree"], [])
    session = (o["node"], o["boot"], o["client"], o["tree"])
    bad = []
    if o["n"] > len(values) or (o["n"] and values[o["n"] - 1][0] != o["last"]):
        bad.append(f"no prefix: tree {o['tree']} had {o['n']} values, the last {o['last']}")
    elif "seq" in o and sum(seq <= o["seq"] for _, seq in values) != o["n"]:
        bad.append(f"wrong position: tree {o['tree']} had {o['n']} values at entry {o['seq']}")
    if o["n"] < newest.get(session, 0):
        bad.append(f"went back: {session} from {newest[session]} values to {o['n']}")
    newest[session] = max(o["n"], newest.get(session, 0))
    return bad


def own(log, o, last_ok):
    """A row of the node alone, which each publish writes together with the shared one."""
    if o["v"] and o["v"] not in log.position:
        return [f"own row without its publish: {o['v']}"]
    have = log.position[o["v"]] if o["v"] else 0
    return [f"own row is older than what was acknowledged: entry {have}, not {last_ok}"] if have < last_ok else []


def lines_of(path):
    """A node that is killed may leave half a line at its end."""
    out = []
    for line in path.read_text().splitlines():
        try:
            out.append(json.loads(line))
        except ValueError:
            pass
    return out
