"""way.py - a way to a server on loopback that counts what passes and breaks to order: bytes both ways, the targets asked for."""
import re
import socket
import threading

from harness.loopback import Loopback, hang_up

TARGET = re.compile(rb"^(?:GET|HEAD|POST) (\S+) HTTP/1\.1\r\n", re.M)


class Way(Loopback):
    """disturb(target) before a request goes on: "cut", or None. sending(n) with each piece of what clients say, midway(target, n) with each
    piece of an answer: likewise. What does not return holds its connection.
    rewrite: (these bytes of a request, become those of the same length)."""

    def __init__(self, port):
        self.to, self.lock = port, threading.Lock()
        self.disturb = self.sending = self.midway = self.rewrite = None
        self.forget()
        super().__init__()

    def forget(self):
        with self.lock:
            self.targets, self.bytes = [], 0

    def asked(self, what):
        with self.lock:
            return [t for t in self.targets if what in t]

    def serve(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self.to))
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        at = {"target": ""}
        threading.Thread(target=self.pump, args=(client, server, at, True), daemon=True).start()
        self.pump(server, client, at, False)

    def passes(self, data, at, asking):
        disturb, sending, midway = self.disturb, self.sending, self.midway  # a test takes them away at any moment
        if asking:
            for found in TARGET.finditer(data):
                at["target"] = found[1].decode("latin-1")
                with self.lock:
                    self.targets.append(at["target"])
                if disturb is not None and disturb(at["target"]) == "cut":
                    return False
            if sending is not None and sending(len(data)) == "cut":
                return False
        elif midway is not None and midway(at["target"], len(data)) == "cut":
            return False
        with self.lock:
            self.bytes += len(data)
        return True

    def pump(self, a, b, at, asking):
        try:
            while data := a.recv(65536):
                if asking and (rewrite := self.rewrite) is not None:
                    data = data.replace(*rewrite)
                if not self.passes(data, at, asking):
                    if not asking:  # half of it: clients ask again by themselves when nothing at all has come
                        b.sendall(data[:len(data) // 2])
                    break
                b.sendall(data)
        except OSError:
            pass
        hang_up(a, b)
