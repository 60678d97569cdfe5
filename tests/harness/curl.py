"""curl.py - one request by the real curl, over HTTP/1.1, HTTP/2 with TLS, or HTTP/2 in clear text."""
import dataclasses
import json
import pathlib
import subprocess
import tempfile

WIRES = ("h1", "h2", "h2c")
FLAGS = {"h1": ["--http1.1"], "h2": ["--http2"], "h2c": ["--http2-prior-knowledge"]}


@dataclasses.dataclass
class Reply:
    status: int
    headers: dict  # lower-case names; of repeated ones the last
    body: bytes
    rc: int        # curl's exit status: 0, or 18 when cut short, 92 for a reset stream ...
    first_s: float
    total_s: float

    def __getitem__(self, name):
        return self.headers.get(name.lower())

    @property
    def whole(self):
        return self.rc == 0


def curl(url, wire="h1", headers=None, method=None, data=None, head=False, cacert=None, limit_s=120, args=()):
    """Never raises for what the server did; a reply that was cut short has rc != 0."""
    with tempfile.TemporaryDirectory(prefix="curl-") as folder:
        body, dump = pathlib.Path(folder, "body"), pathlib.Path(folder, "head")
        command = ["curl", "-q", "-sS", "--noproxy", "*", "--path-as-is", "--max-time", str(limit_s), *FLAGS[wire],
                   "-o", str(body), "-D", str(dump), "-w", "%{json}"]
        if cacert:
            command += ["--cacert", str(cacert)]
        if head:
            command += ["-I"]
        if method:
            command += ["-X", method]
        for name, value in (headers or {}).items():
            command += ["-H", f"{name}: {value}"]
        if data is not None:
            command += ["--data-binary", "@-", "-H", "Content-Type: application/octet-stream"]
        run = subprocess.run([*command, *args, url], input=data, capture_output=True, check=False)
        facts = json.loads(run.stdout or b"{}")
        if facts.get("http_code"):
            want = "1.1" if wire == "h1" else "2"
            assert facts["http_version"] == want, f"asked for {wire}, got HTTP/{facts['http_version']}"
        return Reply(facts.get("http_code", 0), parse_head(dump), body.read_bytes() if body.exists() and not head else b"",
                     run.returncode, facts.get("time_starttransfer", 0.0), facts.get("time_total", 0.0))


def parse_head(path):
    """The last head in the dump: 100 Continue and the like come before it."""
    fields = {}
    if path.exists():
        blocks = path.read_bytes().replace(b"\r\n", b"\n").strip().split(b"\n\n")
        for line in blocks[-1].split(b"\n")[1:]:
            name, _, value = line.partition(b":")
            fields[name.decode("latin-1").strip().lower()] = value.decode("latin-1").strip()
    return fields
