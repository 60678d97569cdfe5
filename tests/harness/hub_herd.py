#!/usr/bin/env python3
"""hub_herd.py - many clients of one repository of a Hub at once: each asks for the commit, the listing, and every file of it
in an order of its own, HEAD before GET, over one connection. Some look at each byte, the others count them in the kernel.

hub_herd.py PORT /PREFIX REPO CLIENTS CHECKING   prints {"clients", "whole", "bytes", "requests", "took_s", "trouble": [...]}
"""
import hashlib
import json
import random
import socket
import sys
import threading
import time

PIECE = 1 << 20


class Broken(Exception):
    pass


class Client(threading.Thread):
    def __init__(self, port, prefix, repo, number, checks):
        super().__init__()
        self.port, self.prefix, self.repo, self.checks = port, prefix, repo, checks
        self.rng, self.room = random.Random(number), memoryview(bytearray(PIECE))
        self.whole, self.trouble, self.bytes, self.requests = False, None, 0, 0
        self.sock = None

    def run(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=300) as self.sock:
                self.snapshot()
            self.whole = True
        except (OSError, Broken, KeyError, ValueError) as e:
            self.trouble = repr(e)

    def snapshot(self):
        api = f"{self.prefix}/api/models/{self.repo}"
        sha = json.loads(self.text(f"{api}/revision/main"))["sha"]
        files = [e for e in json.loads(self.text(f"{api}/tree/{sha}?recursive=true&expand=false")) if e["type"] == "file"]
        self.rng.shuffle(files)
        for e in files:
            at = f"{self.prefix}/{self.repo}/resolve/{sha}/{e['path']}"
            name = e.get("lfs", e)["oid"]
            for method in ("HEAD", "GET"):
                fields, rest = self.ask(method, at)
                said = (fields["etag"].strip('"'), int(fields["content-length"]), fields["x-repo-commit"])
                if said != (name, e["size"], sha):
                    raise Broken(f"{method} {at}: {said}")
            self.body(e, rest, name)

    def text(self, at):
        fields, rest = self.ask("GET", at)
        while len(rest) < int(fields["content-length"]):
            rest += self.more()
        return rest

    def more(self):
        part = self.sock.recv(65536)
        if not part:
            raise Broken("the connection ended")
        return part

    def ask(self, method, at):
        """The fields of a 200, and what came along of its body."""
        self.requests += 1
        self.sock.sendall(f"{method} {at} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nUser-Agent: herd\r\n\r\n".encode())
        rest = b""
        while b"\r\n\r\n" not in rest:
            rest += self.more()
        head, rest = rest.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        if lines[0].split()[1] != "200":
            raise Broken(f"{method} {at}: {head.decode('latin-1')} {rest[:300]}")
        return {n.lower(): v for n, _, v in (line.partition(": ") for line in lines[1:])}, rest

    def body(self, e, rest, name):
        h = None
        if self.checks:
            h = hashlib.sha256() if "lfs" in e else hashlib.sha1(b"blob %d\0" % e["size"])
            h.update(rest)
        left = e["size"] - len(rest)
        while left > 0:
            n = self.sock.recv_into(self.room, min(left, PIECE), 0 if h else socket.MSG_TRUNC)
            if n == 0:
                raise Broken(f"{e['path']} was cut short by {left}")
            if h:
                h.update(self.room[:n])
            left -= n
        if h and h.hexdigest() != name:
            raise Broken(f"{e['path']} has other bytes than its name tells")
        self.bytes += e["size"]


def main(port, prefix, repo, count, checking):
    clients = [Client(int(port), prefix, repo, i, i < int(checking)) for i in range(int(count))]
    began = time.monotonic()
    for c in clients:
        c.start()
    for c in clients:
        c.join()
    print(json.dumps({"clients": len(clients), "whole": sum(c.whole for c in clients), "bytes": sum(c.bytes for c in clients),
                      "requests": sum(c.requests for c in clients), "took_s": time.monotonic() - began,
                      "trouble": [c.trouble for c in clients if c.trouble][:5]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
