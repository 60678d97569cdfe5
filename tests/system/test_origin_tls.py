"""An origin over TLS: whom we believe, where it may lead, and that no secret goes to anybody else."""
import ssl

import pytest

from harness.mirrord import free_port
from harness.origin import Origin
from harness.tls import Authority, server_context

pytestmark = pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
MIB = 1 << 20
SECRET = "Bearer origins-own-secret"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def good(authority):
    return server_context(authority.issue("good"))


@pytest.fixture
def origins():
    """origins(context, host) starts one; context None speaks plain HTTP."""
    running = []

    def start(context, **kw):
        running.append(Origin(tls=context, **kw))
        return running[-1]
    yield start
    for o in running:
        o.close()


@pytest.fixture
def mirror(mirrord, authority, tmp_path):
    """mirror(origin, "more keys") is a mirrord whose one repo has a secret for that origin."""
    (tmp_path / "secret").write_text(SECRET)

    def start(o, more="", url=None, ca=True):
        trust = f'ca_file = "{authority.pem}"' if ca else ""
        return mirrord(f"""
            cache {{ tries = 2 }}
            repo "data" {{ protocol = "generic" origin = "{url or o.url}/" {trust} {more}
                authorization = "file:{tmp_path}/secret"
                rule '\\.txt$' {{ class = mutable ttl = 0s sie = 1h }}
                rule '.' {{ class = immutable }} }}""")
    return start


# --- whom we believe ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_cold_range_warm(mirror, origins, good, wire, host):
    o = origins(good)
    m = mirror(o, url=f"https://{host}:{o.port}")
    thing = o.put("/a", size=8 * MIB)
    part = m.get("/data/a", wire, headers={"Range": "bytes=5000000-5000099"})
    assert part.status == 206 and part.body == o.bytes_of("/a", 5000000, 5000100)
    for _ in range(2):
        reply = m.get("/data/a", wire)
        assert reply.whole and reply.body == o.bytes_of("/a")
        m.settle()
    assert thing.authorized == thing.requests and thing.bytes <= 8 * MIB * 1.01


STRANGERS = ["self-signed", "another name", "expired", "signed by a server", "TLS 1.1"]


@pytest.fixture(scope="module")
def strangers(authority):
    """Each has a certificate that proves nothing, or shows a good one in a way that nobody should believe."""
    leaf = authority.issue("leaf")
    return {
        "self-signed": server_context(authority.self_signed("self-signed")),
        "another name": server_context(authority.issue("another", names="DNS:other.example,IP:192.0.2.1")),
        "expired": server_context(authority.issue("expired", days=-1)),
        "signed by a server": server_context(authority.issue("forged", by=leaf)),
        "TLS 1.1": server_context(leaf, newest=ssl.TLSVersion.TLSv1_1),
    }


@pytest.fixture(params=STRANGERS)
def stranger(request, strangers):
    return strangers[request.param]


def refused(m, o, path="/data/a", wire="h1"):
    reply = m.get(path, wire)
    assert reply.status in (502, 504) and o.bytes_of("/a")[:64] not in reply.body
    assert o.requests == 0, "a request went to a server that proved nothing"
    return reply


def test_stranger_gets_no_request(mirror, origins, stranger, wire):
    o = origins(stranger)
    o.put("/a", size=MIB)
    m = mirror(o)
    reply = refused(m, o, wire=wire)
    assert b"TLS" in reply.body, "the operator must be told why"


def test_system_authorities_do_not_vouch(mirror, origins, good):
    """Without ca_file the system's authorities count, and those do not know ours."""
    o = origins(good)
    o.put("/a", size=MIB)
    refused(mirror(o, ca=False), o)


def test_ca_file_stands_alone(mirror, origins, authority, tmp_path_factory):
    """A certificate of any other authority is refused, be it ever so well made."""
    other = Authority(tmp_path_factory.mktemp("other"))
    o = origins(server_context(other.issue("good")))
    o.put("/a", size=MIB)
    refused(mirror(o), o)


def test_plain_http_at_a_tls_origin(mirror, origins, good):
    o = origins(None)
    o.put("/a", size=MIB)
    refused(mirror(o, url=f"https://127.0.0.1:{o.port}"), o)


def test_certificate_expires_later(mirror, origins, good, stranger, wire):
    """What is kept goes on being served stale, and what is not kept fails."""
    o = origins(good, port=free_port())
    o.put("/a.txt", size=5000)
    o.put("/a", size=MIB)
    m = mirror(o)
    kept = m.get("/data/a.txt", wire)
    assert kept.status == 200
    m.settle()
    o.close()
    now = origins(stranger, port=o.port)
    now.put("/a.txt", size=5000, seed=2)
    now.put("/a", size=MIB, seed=2)
    stale = m.get("/data/a.txt", wire)
    assert (stale.status, stale.body) == (200, kept.body) and "stale" in stale["cache-status"] + stale.headers.get("warning", "")
    refused(m, now, wire=wire)


# An answer without a length ends with the connection. Over TLS only close_notify is an end; a bare FIN may be anybody's.

@pytest.mark.parametrize("end", ["said", "cut"])
def test_truncation(mirror, origins, good, wire, end):
    o = origins(good)
    o.put("/a", size=MIB, unframed=True, **({"short": MIB // 2} if end == "cut" else {}))
    reply = mirror(o).get("/data/a", wire)
    if end == "said":
        assert reply.whole and reply.body == o.bytes_of("/a")
    else:
        assert reply.status >= 500 or not reply.whole, f"{len(reply.body)} bytes of {MIB} were served as complete"


# --- where it may lead, and with what -------------------------------------------------------------------------------------

@pytest.fixture
def pair(origins, good):
    """The origin, and another host with a good certificate."""
    o, other = origins(good), origins(good, host="127.0.0.2")
    other.put("/a", size=MIB)
    o.put("/a", redirect=other.url + "/a")
    return o, other


def test_to_a_named_host_without_the_secret(mirror, pair, wire):
    o, other = pair
    m = mirror(o, f'hosts = {{"127.0.0.2:{other.port}"}}')
    assert m.get("/data/a", wire).body == other.bytes_of("/a")
    assert other.stats("/a").requests and not other.stats("/a").authorized and o.stats("/a").authorized


@pytest.mark.parametrize("hosts", ["", "hosts = {}", 'hosts = {"127.0.0.2:1"}'], ids=["unset", "none", "another port"])
def test_to_a_host_inside(mirror, pair, wire, hosts):
    """Even over https: unset, any host outside would do, but this one is on the loopback."""
    o, other = pair
    refused(mirror(o, hosts), other, wire=wire)


def test_to_another_port_of_the_same_host(mirror, origins, good, wire):
    o, other = origins(good), origins(good)
    other.put("/a", size=MIB)
    o.put("/a", redirect=other.url + "/a")
    refused(mirror(o), other, wire=wire)


def test_back_and_forth(mirror, pair, wire):
    """Home again, the secret is sent again; at the other host it never was."""
    o, other = pair
    o.put("/b", size=MIB)
    other.put("/a", redirect=o.url + "/b")
    m = mirror(o, f'hosts = {{"127.0.0.2:{other.port}"}}')
    assert m.get("/data/a", wire).body == o.bytes_of("/b")
    assert o.stats("/b").authorized and not other.stats("/a").authorized


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "not listed"])
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_down_to_plain_http(mirror, origins, good, wire, host, listed):
    """Never, whatever is configured: what TLS vouched for would end there."""
    o, plain = origins(good), origins(None, host=host)
    plain.put("/a", size=MIB)
    o.put("/a", redirect=plain.url + "/a")
    m = mirror(o, f'hosts = {{"{host}:{plain.port}"}}' if listed else "")
    assert b"plain http" in refused(m, plain, wire=wire).body


def test_up_to_https(mirror, origins, good, wire):
    o, other = origins(None), origins(good)
    other.put("/a", size=MIB)
    o.put("/a", redirect=other.url + "/a")
    m = mirror(o, f'hosts = {{"127.0.0.1:{other.port}"}}')
    assert m.get("/data/a", wire).body == other.bytes_of("/a")
    assert not other.stats("/a").authorized


def test_to_a_stranger(mirror, origins, good, stranger, wire):
    """A host that is listed must prove its name all the same."""
    o, other = origins(good), origins(stranger, host="127.0.0.2")
    other.put("/a", size=MIB)
    o.put("/a", redirect=other.url + "/a")
    refused(mirror(o, f'hosts = {{"127.0.0.2:{other.port}"}}'), other, wire=wire)


def test_an_index_does_not_lead_down_either(mirrord, origins, authority, good, wire):
    """A page over https that links to a file over plain http: the link leads nowhere."""
    o, plain = origins(good), origins(None, host="127.0.0.2")
    wheel = "demo_pkg-1.0-py3-none-any.whl"
    plain.put(f"/{wheel}", size=MIB)
    o.put("/simple/demo-pkg/", type="text/html", body=(
        f'<!DOCTYPE html><html><body><a href="{plain.url}/{wheel}#sha256={plain.sha256("/" + wheel)}">{wheel}</a>'
        '</body></html>').encode())
    m = mirrord(f"""repo "pypi" {{ protocol = "pypi" origin = "{o.url}/" ca_file = "{authority.pem}"
                    hosts = {{"127.0.0.2:{plain.port}"}} }}""")
    page = m.get("/pypi/simple/demo-pkg/", wire)
    assert page.status == 200 and plain.url.encode() not in page.body
    for link in filter(None, (part.split('"')[0].split("#")[0] for part in page.body.decode().split('href="')[1:])):
        path = link[link.index("/pypi/"):] if "/pypi/" in link else "/pypi/simple/demo-pkg/" + link
        assert m.get(path, wire).status >= 400
    assert plain.requests == 0
