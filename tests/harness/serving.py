"""serving.py - what the fake servers here have in common: HTTP/1.1 without a word on stderr, a thread a connection, TLS when asked for.

    class Handler(serving.Handler):
        def do_GET(self): ...           # self.server is the Server; cut() breaks the connection off

    server = serving.Server(("127.0.0.1", 0), Handler); serving.run(server); ...; serving.stop(server)
"""
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def cut(self):
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024
    tls = None  # an ssl.SSLContext

    def finish_request(self, request, client_address):
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        with self.tls.wrap_socket(request, server_side=True) as wrapped:  # on the connection's own thread
            super().finish_request(wrapped, client_address)
            wrapped.settimeout(5)
            wrapped.unwrap()  # an end that the client can believe; fails where cut() came first

    def handle_error(self, request, client_address):
        pass  # clients go as they please


def run(server):
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


def stop(server):
    server.shutdown()
    server.server_close()
