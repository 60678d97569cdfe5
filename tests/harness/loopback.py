"""loopback.py - what stands between a test's two ends on loopback: a listener whose clients have a thread each, bytes from one to the other."""
import socket
import threading


def hang_up(*ends):
    for s in ends:
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def pipe(a, b):
    """What comes from a goes to b, until either ends."""
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    hang_up(a, b)


class Loopback:
    """serve(client) is the heir's, in a thread of its own. port: where it listens, as long as it is entered."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()
