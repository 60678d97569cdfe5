"""round_robin.py - mirrors of one cluster, and a balancer without affinity: each request goes to the next mirror, on a connection of its own."""
import re
import socket
import subprocess
import threading

from harness.curl import curl
from harness.loopback import Loopback, hang_up, pipe
from harness.mirrord import SLOW, Mirrord, free_port, know_each_other, until

HEAD_MAX = 256 << 10


class RoundRobin(Loopback):
    """targets: "METHOD target -> index" of each request. choose(target): the index of a mirror, or None for the next one.
    What it does not have itself is the first mirror's, so tests of one mirror can be given this."""

    put = Mirrord.put

    def __init__(self, mirrors):
        self.mirrors, self.ports = mirrors, [m.port for m in mirrors]
        self.lock, self.next, self.targets, self.choose = threading.Lock(), 0, [], lambda target: None
        super().__init__()

    def __getattr__(self, name):
        return getattr(self.mirrors[0], name)

    def url(self, path="", wire="h1"):
        """With TLS, each address is that of the next mirror."""
        if wire == "h2":
            self.next += 1
            return self.mirrors[self.next % len(self.mirrors)].url(path, wire)
        return f"http://127.0.0.1:{self.port}{path}"

    def get(self, path, wire="h1", **kw):
        kw.setdefault("limit_s", 120 * SLOW)
        return curl(self.url(path, wire), wire=wire, cacert=self.cert[0] if self.cert else None, **kw)

    def pick(self, method, target):
        with self.lock:
            at = self.choose(target)
            if at is None:
                at, self.next = self.next % len(self.ports), self.next + 1
            self.targets.append(f"{method} {target} -> {at}")
        return self.ports[at]

    def serve(self, client):
        head = b""
        while b"\r\n\r\n" not in head and len(head) < HEAD_MAX:
            data = client.recv(65536)
            if not data:
                client.close()
                return
            head += data
        head, rest = head.split(b"\r\n\r\n", 1)
        method, target = head.split(b" ", 2)[:2]
        head = re.sub(rb"\r\nconnection:[^\r]*", b"", head, flags=re.I)
        try:
            server = socket.create_connection(("127.0.0.1", self.pick(method.decode(), target.decode())))
        except OSError:  # as a balancer that has found nobody
            client.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            hang_up(client)
            return
        server.sendall(head + b"\r\nConnection: close\r\n\r\n" + rest)
        threading.Thread(target=pipe, args=(client, server), daemon=True).start()
        pipe(server, client)


HOSTED = 'repo "models" { protocol = "hosted" }'


class Cluster:
    """Three mirrors over a bucket, and `front` before them."""

    def __init__(self, mirrord, bucket, folder, conf=HOSTED, more=""):
        self.mirrord, self.bucket, self.conf, self.more = mirrord, bucket, conf, more
        self.keys, self.secret = bucket.keys_file(folder), bucket.secret_file(folder)
        self.nodes = [self.start() for _ in range(3)]
        self.know()
        self.front = RoundRobin(self.nodes)

    def start(self, **kw):
        port = free_port()
        return self.mirrord(f'''{self.conf}
            listen "127.0.0.1:{port}" {{ }}
            cluster "{self.bucket.url}" {{ {self.bucket.access(self.keys)}
                                          secret = "file:{self.secret}" address = "http://127.0.0.1:{port}" {self.more} }}''', **kw)

    @staticmethod
    def port_of(m):
        """At which the others reach it."""
        return int(re.search(r'address = "http://127.0.0.1:(\d+)"', m.config)[1])

    def know(self):
        know_each_other(self.nodes)

    def token(self, name, *scopes):
        """That all mirrors know."""
        token = self.nodes[0].token(name, *scopes)
        for m in self.nodes[1:]:
            until(lambda m=m: m.get("/models/", headers={"Authorization": f"Bearer {token}"}).status != 401)
        return token

    def node_of(self, upload):
        """The mirror that has the upload with this id, or that a request names."""
        return next(m for m in self.nodes if m.ctl_json("cluster", "status")["node"][:12] == upload[:12])


class HAProxy(RoundRobin):
    """The same by HAProxy, request by request also on a connection that the client keeps."""

    def __init__(self, program, mirrors, folder):
        self.mirrors, self.port = mirrors, free_port()
        servers = "".join(f"    server m{i} 127.0.0.1:{m.port} check inter 500ms fall 2 rise 1\n" for i, m in enumerate(mirrors))
        conf = folder / "haproxy.cfg"
        conf.write_text(f"""
global
    log stderr format raw local0 warning
defaults
    mode http
    timeout connect 2s
    timeout check 60s
    timeout client 5m
    timeout server 5m
    option redispatch
    option httpchk GET /readyz
frontend f
    bind 127.0.0.1:{self.port}
    default_backend b
backend b
    balance roundrobin
{servers}""")
        self.child = subprocess.Popen([program, "-db", "-f", conf], stderr=subprocess.DEVNULL)
        until(lambda: self.get("/readyz").status == 200)

    def __exit__(self, *args):
        self.child.kill()
        self.child.wait()
