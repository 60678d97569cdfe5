"""cluster_content.py - uploads items to a cluster's bucket and downloads them in another process (harness/cluster_content.c)."""
import hashlib
import random
import struct
import subprocess

from harness.mirrord import BUILD, SANITIZERS, SLOW

PROGRAM = BUILD / "harness/cluster_content"
MIB = 1 << 20


def words(n, seed=1):
    """Text that compresses, n bytes of it."""
    dice = random.Random(seed)
    known = [bytes(dice.choices(b"etaoinshrdlu", k=dice.randint(2, 9))) for _ in range(2000)]
    out = bytearray()
    while len(out) < n:
        out += b" ".join(dice.choices(known, k=2000)) + b"\n"
    return bytes(out[:n])


class Result:
    def __init__(self, code, said, errors):
        self.code, self.errors = code, errors
        lines = [line.split(" ") for line in said.splitlines() if " " in line]
        self.index = [v for n, v in lines if n == "idx"]
        self.figure = {n: int(v) for n, v in lines if n != "idx"}

    def __repr__(self):
        return f"{self.code} {self.errors} {self.figure}"


class Content:
    """bucket: what has endpoint, url and keys_file(folder). data: the bytes that items are parts of."""

    def __init__(self, bucket, folder, data):
        self.bucket, self.folder, self.data = bucket, folder, data
        self.keys = bucket.keys_file(folder)
        self.file = folder / "data"
        self.file.write_bytes(data)

    def command(self, *what):
        return [PROGRAM, self.bucket.endpoint, self.bucket.url, self.keys, *map(str, what)]

    def run(self, *what):
        done = subprocess.run(self.command(*what), capture_output=True, text=True, env=SANITIZERS, timeout=240 * SLOW, check=False)
        return Result(done.returncode, done.stdout, done.stderr)

    def list(self, items):
        """items: (kind, offset, length)"""
        (self.folder / "list").write_text("".join(f"{k} {at} {n}\n" for k, at, n in items))
        return "upload", self.file, self.folder / "list"

    def upload(self, items, *more):
        return self.run(*self.list(items), *more)

    def start(self, items, *more):
        """It has begun to upload when this returns."""
        child = subprocess.Popen(self.command(*self.list(items), *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=SANITIZERS)
        assert child.stdout.readline() == "ready\n", child.communicate()
        return child

    def fetch(self, index, *more):
        """(Result, {"kind-digest": bytes})"""
        out = self.folder / "out"
        out.mkdir(exist_ok=True)
        for f in out.iterdir():
            f.unlink()
        done = self.run("fetch", out, *more, *index)
        return done, {f.name: f.read_bytes() for f in out.iterdir()}

    def expected(self, items):
        """What fetch() gives for these."""
        out = {}
        for kind, at, n in items:
            data = self.data[at:at + n]
            digest = hashlib.sha256(data)
            if kind == "chunks":
                chunks = [hashlib.sha256(data[i:i + 8 * MIB]).digest() for i in range(0, n, 8 * MIB)]
                data = b"mrdchnk1" + struct.pack(">IIQ", 23, len(chunks), n) + digest.digest() + b"".join(chunks)
            out[f"{kind}-{digest.hexdigest()}"] = data
        return out
