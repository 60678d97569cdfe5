"""rgw.py - Ceph's object gateway on loopback, with a cluster of one for its disk: a real server of S3, which verifies every
signature. Debian's packages ceph-mon, ceph-osd, ceph-mgr, radosgw and ceph-common; 20 s to its first answer."""
import collections.abc
import email.utils
import http.client
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
import xml.etree.ElementTree

from harness import bucket
from harness.mirrord import free_port
from harness.s3 import ACCESS, BUCKET, SECRET, quoted, signed
from harness.way import Way

PROGRAMS = ("ceph-mon", "ceph-osd", "ceph-mgr", "radosgw", "radosgw-admin", "ceph", "ceph-authtool", "monmaptool")
CONF = """[global]
fsid = {fsid}
mon initial members = a
mon host = [v2:127.0.0.1:{mon}]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
osd pool default pg autoscale mode = off
mon allow pool size one = true
run dir = {d}/run
admin socket = {d}/run/$name.asok
pid file = {d}/run/$name.pid
log file = {d}/log/$name.log
keyring = {d}/keyring
mon data = {d}/mon
mon data avail crit = 1
mgr data = {d}/mgr
osd data = {d}/osd
rgw data = {d}/rgw
osd objectstore = bluestore
bluestore block size = {disk}
osd memory target = 1073741824
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw dns name = localhost
"""


def missing():
    return [p for p in PROGRAMS if shutil.which(p) is None]


class Rgw:
    def __init__(self, disk=8 << 30):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="rgw-"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client, self.folders = Client(self), 0
        self.conf = self.folder / "ceph.conf"
        self.fsid = str(uuid.uuid4())
        self.mon = free_port()
        for name in ("mon", "mgr", "osd", "rgw", "run", "log"):
            (self.folder / name).mkdir()
        self.conf.write_text(CONF.format(fsid=self.fsid, mon=self.mon, d=self.folder, port=self.port, disk=disk))
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.stop()

    def do(self, *args, limit_s=120):
        done = subprocess.run(args, env=dict(os.environ, CEPH_CONF=str(self.conf)), capture_output=True, text=True,
                              timeout=limit_s, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{' '.join(map(str, args))}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self):
        ring, monmap, conf = self.folder / "keyring", self.folder / "monmap", ("-c", self.conf)
        self.do("ceph-authtool", "--create-keyring", ring, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        self.do("ceph-authtool", ring, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *",
                "--cap", "mgr", "allow *")
        self.do("monmaptool", "--create", "--addv", "a", f"[v2:127.0.0.1:{self.mon}]", "--fsid", self.fsid, monmap)
        self.do("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", ring, *conf)
        self.do("ceph-mon", "-i", "a", *conf)
        self.do("ceph-mgr", "-i", "x", *conf)
        osd = str(uuid.uuid4())
        self.do("ceph", *conf, "osd", "new", osd)
        self.do("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd, *conf)
        self.do("ceph-osd", "-i", "0", *conf)
        self.start_gateway()

    def start_gateway(self):
        self.do("radosgw", "-n", "client.admin", "-c", self.conf)
        end = time.monotonic() + 120
        while not self.answers():
            assert time.monotonic() < end, "radosgw does not answer"
            time.sleep(0.2)

    def kill_gateway(self):
        """SIGKILL; the disk goes on."""
        [file] = (self.folder / "run").glob("client*.pid")
        pid = int(file.read_text())
        os.kill(pid, signal.SIGKILL)
        while pathlib.Path(f"/proc/{pid}").exists():
            time.sleep(0.02)

    def answers(self):
        try:
            with urllib.request.urlopen(self.url, timeout=5):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def user(self, name, access_key, secret):
        self.do("radosgw-admin", "-c", self.conf, "user", "create", f"--uid={name}", f"--display-name={name}",
                f"--access-key={access_key}", f"--secret-key={secret}")

    def bucket(self):
        """A new and empty one."""
        self.folders += 1
        return Bucket(self, f"c{self.folders}")

    def stop(self):
        """The daemons have left our family: their own pid files name them."""
        pids = [int(f.read_text()) for f in (self.folder / "run").glob("*.pid") if f.read_text().strip().isdigit()]
        for sig in (signal.SIGTERM, signal.SIGKILL):
            for pid in pids:
                try:
                    if str(self.conf).encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(pid, sig)
                except OSError:
                    pass
            end = time.monotonic() + 10
            while any(pathlib.Path(f"/proc/{p}").exists() for p in pids) and time.monotonic() < end:
                time.sleep(0.1)
        shutil.rmtree(self.folder, ignore_errors=True)


class Client:
    """Requests by our own hand, on a connection for each thread."""

    def __init__(self, server):
        self.host, self.local = server.url.removeprefix("http://"), threading.local()

    def ask(self, method, path, body=b"", query=""):
        """(status, fields, body)"""
        fields = signed(method, self.host, path, payload="UNSIGNED-PAYLOAD", query=query)
        try:
            return self.send(method, f"{path}?{query}" if query else path, body, fields)
        except ConnectionError:  # the gateway closes what is idle for a minute
            del self.local.c
            return self.send(method, f"{path}?{query}" if query else path, body, fields)

    def send(self, *what):
        if not hasattr(self.local, "c"):
            self.local.c = http.client.HTTPConnection(self.host, timeout=60)
        self.local.c.request(*what)
        answer = self.local.c.getresponse()
        return answer.status, answer.headers, answer.read()

    def do(self, method, path, body=b"", query=""):
        status, _, text = self.ask(method, path, body, query)
        assert status in (200, 204), (path, status, text)
        return text

    def put(self, key, data):
        self.do("PUT", f"/{BUCKET}/" + quoted(key.encode("latin-1"), "-._~/"), data)

    def rm(self, key):
        self.do("DELETE", f"/{BUCKET}/" + quoted(key.encode("latin-1"), "-._~/"))

    def keys(self, prefix):
        found, after = [], ""
        while True:
            page = xml.etree.ElementTree.fromstring(self.do("GET", f"/{BUCKET}", query=f"list-type=2&prefix={quoted(prefix)}&start-after={quoted(after)}"))
            found += [c.findtext("{*}Key") for c in page.iterfind("{*}Contents")]
            if page.findtext("{*}IsTruncated") != "true":
                return found
            after = found[-1]


class Objects(collections.abc.MutableMapping):
    """key -> (bytes, when it was written), as the objects of harness/bucket.py; the time cannot be set."""

    def __init__(self, client, folder):
        self.client, self.folder = client, folder

    def path(self, key):
        return f"/{BUCKET}/{self.folder}/{key}"

    def __iter__(self):
        return iter(k.removeprefix(self.folder + "/") for k in self.client.keys(self.folder + "/"))

    def __len__(self):
        return len(list(iter(self)))

    def __getitem__(self, key):
        status, fields, body = self.client.ask("GET", self.path(key))
        if status == 404:
            raise KeyError(key)
        assert status == 200, (key, status, body)
        return body, email.utils.parsedate_to_datetime(fields["last-modified"]).timestamp()

    def __setitem__(self, key, value):
        self.client.do("PUT", self.path(key), value[0])

    def __delitem__(self, key):
        self.client.do("DELETE", self.path(key))


class Bucket:
    """A folder of the gateway's bucket, for the tests of harness/bucket.py's Bucket. sent: bytes of responses, with their heads."""

    keys_file, access, under = bucket.Bucket.keys_file, bucket.Bucket.access, bucket.Bucket.under
    secret_file, ever_under = staticmethod(bucket.Bucket.secret_file), under

    def __init__(self, server, folder):
        self.objects = Objects(server.client, folder)
        self.url, self.sent, self.way = f"s3://{BUCKET}/{folder}/prod/", {}, Way(server.port)
        self.endpoint = f"http://127.0.0.1:{self.way.port}"
        self.way.midway = self.count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.way.__exit__()

    def count(self, target, n):
        first = urllib.parse.urlsplit(target).path.partition("/prod/")[2].partition("/")[0]
        self.sent[first] = self.sent.get(first, 0) + n

    @property
    def down(self):
        return self.way.sending is not None

    @down.setter
    def down(self, yes):
        self.way.sending = (lambda n: "cut") if yes else None


def main():
    """A store to try with (docs/cluster.md): until Ctrl-C."""
    with Rgw() as server:
        server.user("m", ACCESS, SECRET)
        server.client.do("PUT", f"/{BUCKET}")
        print(f"endpoint: {server.url}\nbucket: {BUCKET}\nkeys: {ACCESS}:{SECRET}", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
