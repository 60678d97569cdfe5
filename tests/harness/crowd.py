"""crowd.py - several clients on one machine: each asks from a loopback address of its own, and so has a share of its own."""
import http.client
import threading

from harness.mirrord import SLOW


class Client:
    """All of its connections come from `address`; answers are counted as they come."""

    def __init__(self, m, address, token=None):
        self.m, self.address, self.token = m, address, token
        self.done = []  # (path, status) in the order of their ends
        self.lost = []  # (path, why) of answers that `begin` asked for and that did not come whole
        self.threads = []
        self.stopped = False

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.m.port, timeout=300 * SLOW, source_address=(self.address, 0))

    def ask(self, path, method="GET", body=None, headers=None, conn=None):
        fields = dict(headers or {}, **({"Authorization": f"Bearer {self.token}"} if self.token else {}))
        c = conn or self.connect()
        try:
            c.request(method, path, body=body, headers=fields)
            reply = c.getresponse()
            data = reply.read()
        finally:
            if conn is None:
                c.close()
        self.done.append((path, reply.status))
        return reply.status, data

    def begin(self, path, **kw):
        """Asks on a connection and a thread of its own; an answer that never comes is nobody's loss."""
        def run():
            try:
                self.ask(path, **kw)
            except (OSError, http.client.HTTPException) as e:
                self.lost.append((path, repr(e)))
        t = threading.Thread(target=run, daemon=True)
        self.threads.append(t)
        t.start()

    def join(self):
        for t in self.threads:
            t.join(300 * SLOW)
