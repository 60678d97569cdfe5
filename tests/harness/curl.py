"""curl.py - one request by the real curl, program or library, over HTTP/1.1, HTTP/2 with TLS, or HTTP/2 in clear text."""
import dataclasses
import json
import pathlib
import subprocess
import tempfile
import time

from harness.libcurl import Transfer, transfer

WIRES = ("h1", "h2", "h2c")
PAUSE_S = 0.01  # behind an answer comes what it left to do: a line of the log, a row. The end of a program takes as long
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
    """Never raises for what the server did; a reply that was cut short has rc != 0. The program itself runs for the sake of its `args` alone."""
    head = head or method == "HEAD"
    fields = [f"{name}: {value}" for name, value in (headers or {}).items()]
    if data is not None:
        fields.append("Content-Type: application/octet-stream")
    do = program if args else transfer
    done = do(url, wire, fields, *([args] if args else []), method=method, data=data, head=head, cacert=cacert, limit_s=limit_s)
    if not args:
        time.sleep(PAUSE_S)
    want = "1.1" if wire == "h1" else "2"
    assert not done.status or done.version == want, f"asked for {wire}, got HTTP/{done.version}"
    return Reply(done.status, parse_head(done.head), done.body, done.rc, done.first_s, done.total_s)


def program(url, wire, fields, args, method, data, head, cacert, limit_s):
    with tempfile.TemporaryDirectory(prefix="curl-") as folder:
        body, dump = pathlib.Path(folder, "body"), pathlib.Path(folder, "head")
        command = ["curl", "-q", "-sS", "--noproxy", "*", "--path-as-is", "--max-time", str(limit_s), *FLAGS[wire],
                   "-o", str(body), "-D", str(dump), "-w", "%{json}"]
        if cacert:
            command += ["--cacert", str(cacert)]
        if head:  # -X HEAD would wait for a body, until the server hangs up
            command += ["-I"]
        elif method:
            command += ["-X", method]
        for field in fields:
            command += ["-H", field]
        if data is not None:
            command += ["--data-binary", "@-"]
        run = subprocess.run([*command, *args, url], input=data, capture_output=True, check=False)
        facts = json.loads(run.stdout or b"{}")
        return Transfer(run.returncode, facts.get("http_code", 0), facts.get("http_version", ""), dump.read_bytes() if dump.exists() else b"",
                        body.read_bytes() if body.exists() and not head else b"", facts.get("time_starttransfer", 0.0), facts.get("time_total", 0.0))


def curl_all(urls, wire="h1", cacert=None, limit_s=120):
    """(status, body) of each, one behind the other on one connection: a process for each would be most of the work. A reply that was cut
    short has status 0."""
    if wire == "h2c":  # 7.88 takes one request to a connection there
        replies = [curl(url, wire, cacert=cacert, limit_s=limit_s) for url in urls]
        return [(r.status if r.whole else 0, r.body) for r in replies]
    with tempfile.TemporaryDirectory(prefix="curl-") as folder:
        command = ["curl", "-q", "-sS", "-g", "--noproxy", "*", "--path-as-is", "--max-time", str(limit_s), *FLAGS[wire],
                   "-w", "%{http_code} %{exitcode}\\n", "-K", "-"]
        if cacert:
            command += ["--cacert", str(cacert)]
        asked = "".join(f'url = "{url}"\noutput = "{folder}/{i}"\n' for i, url in enumerate(urls))
        run = subprocess.run(command, input=asked.encode(), capture_output=True, check=False)
        told = [line.split() for line in run.stdout.splitlines()]
        assert len(told) == len(urls), run.stderr
        bodies = [pathlib.Path(folder, str(i)) for i in range(len(urls))]
        return [(int(status) if rc == b"0" else 0, body.read_bytes() if body.exists() else b"")
                for (status, rc), body in zip(told, bodies)]


def parse_head(dump):
    """The last head in the dump: 100 Continue and the like come before it."""
    fields = {}
    blocks = dump.replace(b"\r\n", b"\n").strip().split(b"\n\n")
    for line in blocks[-1].split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        fields[name.decode("latin-1").strip().lower()] = value.decode("latin-1").strip()
    return fields
