"""connect_proxy.py - an HTTP proxy on loopback that knows CONNECT alone, and says what a test wants it to."""
import base64
import re
import socket
import threading

from harness.loopback import Loopback, pipe

ASKED = re.compile(rb"CONNECT (\S+) HTTP/1\.[01]\r?\n((?:[^\r\n]+\r?\n)*)\r?\n")  # rsync ends some lines with less


class ConnectProxy(Loopback):
    """asked: (target, fields) of each request. user: "name:password" that it wants. says: instead of an answer of its own; None: it is silent
    for good. together: its answer goes out with the peer's first bytes, in one piece. leads: "host:port" that was asked for -> the port on
    loopback that it is; others are looked up."""

    def __init__(self, user=None, says=b"", together=False, leads=()):
        self.user, self.says, self.together, self.asked, self.leads = user, says, together, [], dict(leads)
        super().__init__()

    def allows(self, fields):
        return self.user is None or b"Basic " + base64.b64encode(self.user.encode()) in fields

    def serve(self, client):
        head = b""
        while not (asked := ASKED.fullmatch(head)):
            data = client.recv(4096)
            if not data or len(head) > 65536:
                client.close()
                return
            head += data
        target, fields = asked.groups()
        self.asked.append((target.decode(), fields))
        if self.says is None:
            client.recv(1)  # until it is given up
        elif self.says:
            client.sendall(self.says)
            client.close()
        elif not self.allows(fields):
            client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n")
            client.close()
        else:
            self.lead(client, target.decode())

    @property
    def targets(self):
        return {target for target, _ in self.asked}

    def lead(self, client, target):
        host, port = ("127.0.0.1", self.leads[target]) if target in self.leads else target.rsplit(":", 1)
        peer = socket.create_connection((host.strip("[]"), int(port)))
        answer = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 a-proxy\r\n\r\n"
        if self.together:
            answer += peer.recv(65536)
            client.sendall(answer)
        else:
            for i in range(len(answer)):  # by single bytes, as far as the socket lets it
                client.sendall(answer[i:i + 1])
        threading.Thread(target=pipe, args=(client, peer), daemon=True).start()
        pipe(peer, client)
