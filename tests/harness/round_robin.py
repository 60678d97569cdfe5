"""round_robin.py - a balancer without affinity: each request goes to the next of several mirrors, on a connection of its own."""
import re
import socket
import threading

from harness.curl import curl
from harness.loopback import Loopback, hang_up, pipe
from harness.mirrord import SLOW, Mirrord

HEAD_MAX = 256 << 10


class RoundRobin(Loopback):
    """targets: "METHOD target -> index" of each request. choose(target): the index of a mirror, or None for the next one."""

    put = Mirrord.put

    def __init__(self, mirrors):
        self.ports = [m.port for m in mirrors]
        self.lock, self.next, self.targets, self.choose = threading.Lock(), 0, [], lambda target: None
        super().__init__()

    def url(self, path="", wire="h1"):
        return f"http://127.0.0.1:{self.port}{path}"

    def get(self, path, wire="h1", **kw):
        kw.setdefault("limit_s", 120 * SLOW)
        return curl(self.url(path), wire=wire, **kw)

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
