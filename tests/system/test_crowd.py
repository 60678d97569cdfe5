"""An origin that says nothing: those who wait for it have a bound, whoever comes beyond it is told to come again."""
import concurrent.futures
import http.server
import threading

import pytest

from harness.mirrord import until


class Silent(http.server.ThreadingHTTPServer):
    """Takes each request and answers it, by its path, once `go` is set."""
    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.go = threading.Event()
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def close(self):
        self.go.set()
        self.shutdown()
        self.thread.join()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # the mirror has let go


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.server.go.wait()
        body = self.path.encode() * 100
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def silent():
    origin = Silent()
    yield origin
    origin.close()


@pytest.mark.parametrize("wire", ["h1", "h2"])
def test_a_silent_origin_has_a_bounded_queue(mirrord, silent, wire):
    m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{silent.url}/" waiting = 3 stall = "10m" connections = 2
                                   rule '.' {{ class = immutable }} }}
                    repo "more" {{ protocol = "generic" origin = "{silent.url}/" stall = "10m" }}""")
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        asked = [pool.submit(m.get, f"/data/{i}", wire, limit_s=600) for i in range(3)]
        m.reaches("mirrord_cache_waiting", 3)

        turned_away = m.get("/data/3", wire)
        assert turned_away.status == 503 and int(turned_away["retry-after"]) > 0
        assert b"too many requests are waiting for the origin" in turned_away.body
        assert m.metric("mirrord_cache_crowded_total") == 1

        # The same object again is no more work for anybody, up to a wider bound.
        asked += [pool.submit(m.get, "/data/0", wire, limit_s=600) for _ in range(21)]
        m.reaches("mirrord_cache_waiting", 24)
        assert m.get("/data/0", wire).status == 503
        assert m.metric("mirrord_cache_crowded_total") == 2

        # Another repo has a bound of its own.
        asked.append(pool.submit(m.get, "/more/x", wire, limit_s=600))
        m.reaches("mirrord_cache_waiting", 25)

        silent.go.set()
        got = [a.result() for a in asked]
    assert [(g.status, g.whole) for g in got] == [(200, True)] * 25
    assert {g.body for g in got[3:24]} == {b"/0" * 100}
    again = m.get("/data/3", wire)
    assert again.status == 200 and again.body == b"/3" * 100, "that it was turned away says nothing about the object"
    until(lambda: m.metric("mirrord_cache_waiting") == 0)


def test_who_has_left_makes_room_in_the_end(mirrord, silent):
    """Clients that left are not waited for: the transfer ends when nobody reads it, and with it their places."""
    m = mirrord(f"""cache {{ grace = "0" tries = 1 }}
                    repo "data" {{ protocol = "generic" origin = "{silent.url}/" waiting = 1 stall = "6s" }}""")  # a slow machine's, too
    assert m.get("/data/0").status in (502, 503)
    until(lambda: m.metric("mirrord_cache_waiting") == 0)
    silent.go.set()
    assert m.get("/data/1").status == 200
