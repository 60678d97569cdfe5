"""cluster.py - nodes of a cluster's log (harness/cluster_node.c) over one bucket, and the judgement on what they were told."""
import signal
import subprocess

from harness import history
from harness.mirrord import BUILD, SANITIZERS, SLOW

NODE = BUILD / "harness/cluster_node"


class Cluster:
    """bucket: what has endpoint, url, keys_file(folder) and ever_under(prefix)."""

    def __init__(self, bucket, folder):
        self.bucket, self.folder, self.children = bucket, folder, {}
        self.keys, self.history = bucket.keys_file(folder), folder / "history"
        self.history.touch()
        self.boots = 0

    def command(self, *what):
        return [NODE, self.bucket.endpoint, self.bucket.url, self.keys, *map(str, what)]

    def start(self, node, count, trees=5, settle_ms=30000, more=()):
        self.boot(node, "publish", self.history, node, trees, count, settle_ms, *more)

    def start_store(self, node, count, trees=5, settle_ms=30000, more=()):
        self.boot(node, "store", self.history, node, trees, count, settle_ms, self.folder / f"state{node}", *more)

    def boot(self, node, *what):
        self.boots += 1
        log = open(self.folder / f"node{node}-{self.boots}.log", "wb")
        self.children[node] = subprocess.Popen(self.command(*what), stdout=log, stderr=log, env=SANITIZERS)

    def end(self, codes=(0,)):
        for node, child in self.children.items():
            assert child.wait(timeout=240 * SLOW) in codes, (node, child.returncode, self.said())

    def run(self, *what):
        done = subprocess.run(self.command(*what), capture_output=True, text=True, env=SANITIZERS, timeout=120 * SLOW)
        return done.returncode, done.stdout, done.stderr

    def checkpoint(self, trees=5, part_bytes=0):
        """The key of a new one."""
        code, key, said = self.run("checkpoint", self.history, 50, trees, part_bytes)
        assert code == 0, said
        return key.strip()

    def trim(self, age_s):
        """How many entries were deleted."""
        code, counts, said = self.run("trim", age_s)
        assert code == 0, said
        return int(counts.split()[3])

    def said(self):
        return "".join(p.read_text()[-2000:] for p in sorted(self.folder.glob("node*.log")))

    def judge(self, void=None):
        assert self.count("stopped") == 0, self.said()
        log = history.Log(self.bucket.ever_under("log/0/"), void)
        return log, history.findings(log, history.lines_of(self.history))

    def count(self, what):
        return sum(o["t"] == what for o in history.lines_of(self.history))

    def stop(self):
        for child in self.children.values():
            child.send_signal(signal.SIGCONT)
            child.kill()
            child.wait()


def probe(bucket, folder):
    done = subprocess.run([NODE, bucket.endpoint, bucket.url, bucket.keys_file(folder), "probe"], capture_output=True, text=True, env=SANITIZERS,
                          timeout=120 * SLOW)
    return done.returncode, done.stdout + done.stderr
