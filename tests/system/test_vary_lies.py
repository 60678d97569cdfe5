"""Origins whose Vary makes no sense: a request of a client costs a few of theirs at most, and is answered."""
import pytest

from harness import serving

WANTS = {"Accept": "application/json", "Accept-Language": "de", "foo": "x"}
LIES = {
    "no field's name": lambda fields: "a:b",
    "a name that looks like a mark": lambda fields: "a, ~foo",
    "another with each answer": lambda fields: "Accept" if fields["Accept"] in (None, "*/*") else "Accept-Language",
}


class Negotiator(serving.Handler):
    def do_GET(self):
        self.server.asked.append((self.headers["Accept"], self.headers["Accept-Language"]))
        self.send_response(200)
        for name, value in (("Content-Length", "4"), ("Cache-Control", "max-age=600"), ("Vary", self.server.says(self.headers))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(b"form")


@pytest.fixture
def negotiator():
    server = serving.Server(("127.0.0.1", 0), Negotiator)
    server.asked = []
    serving.run(server)
    yield server
    serving.stop(server)


@pytest.mark.parametrize("says", LIES.values(), ids=LIES.keys())
def test_a_vary_that_never_fits(mirrord, negotiator, says, wire):
    negotiator.says = says
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "http://127.0.0.1:{negotiator.server_address[1]}/" }}')
    for _ in range(2):
        reply = m.get("/data/n", wire, headers=WANTS)
        assert (reply.status, reply.body) == (200, b"form")
        m.settle()
    assert len(negotiator.asked) <= 3


def test_a_long_path_and_long_fields(mirrord, negotiator):
    """The key of a row has room for the longest of both."""
    names = [f"X-{i:02}-" + "n" * 59 for i in range(24)]
    negotiator.says = lambda fields: ", ".join(["X-A", *names])
    m = mirrord(f"""http {{ uri = 16k header = 64k }}
                    repo "data" {{ protocol = "generic" origin = "http://127.0.0.1:{negotiator.server_address[1]}/" forward = {{ "X-A" }} rule '.' {{ ttl = 1h }} }}""")
    headers = {"X-A": "a" * 2048, **{name: "v" * 64 for name in names[:16]}}
    path = "/data/" + "/".join("p" * 200 for _ in range(61))
    for _ in range(2):
        reply = m.get(path, headers=headers)
        assert (reply.status, reply.body) == (200, b"form")
        m.settle()
    assert len(negotiator.asked) == 1
