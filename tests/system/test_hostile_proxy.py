"""With `proxy` set an origin leads no more into the inner network than without: what it names is judged before the proxy is asked."""
import os
import subprocess

import pytest

from harness.connect_proxy import ConnectProxy
from harness.origin import Origin
from harness.tls import NAMES, Authority, server_context

BODY = b"what only the inner network may see"
# One address, in the spellings that resolvers take for it; {} is a port.
LOOPBACK = ["127.0.0.1:{}", "127.0.0.1.:{}", "127.1:{}", "2130706433:{}", "0x7f000001:{}", "0x7f.0.0.1:{}", "0177.0.0.1:{}", "017700000001:{}",
            "127.9.9.9:{}", "0.0.0.0:{}", "0:{}", "localhost:{}", "LOCALHOST.:{}", "a.localhost:{}", "localhost.localdomain:{}",
            "ip6-localhost:{}", "[::1]:{}", "[::]:{}", "[::127.0.0.1]:{}", "[::ffff:127.0.0.1]:{}", "[::ffff:7f00:1]:{}",
            "[0:0:0:0:0:ffff:7f00:0001]:{}", "[64:ff9b::7f00:1]:{}", "[64:ff9b:1::7f00:1]:{}", "[2002:7f00:1::]:{}"]
OTHERS = ["10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200", "2852039166", "0xa9fea9fe", "[fd00:ec2::254]",
          "[fe80::1]", "metadata.google.internal", "printer.local", "router.home.arpa", "intranet", "host.localdomain"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority):
    return server_context(authority.issue("good", names=f"{NAMES},DNS:files.example,DNS:inner.example,DNS:both.example"))


@pytest.fixture
def outside(tls):
    """The origin that the configuration names. It is on loopback itself, as the operator says."""
    with Origin(tls=tls) as o:
        yield o


@pytest.fixture
def victim(tls):
    with Origin(tls=tls) as o:
        o.put("/secret", body=BODY)
        yield o


def config(outside, authority, proxy, more="", protocol="generic"):
    rule = "rule '.' { class = immutable }" if protocol == "generic" else ""
    return f"""repo "x" {{ protocol = "{protocol}" origin = "{outside.url}/" ca_file = "{authority.pem}"
        proxy = "http://127.0.0.1:{proxy.port}" {more} {rule} }}"""


def test_no_redirect_leads_inside(mirrord, outside, victim, authority):
    places = [f"https://{x.format(victim.port)}/secret" for x in LOOPBACK] + [f"https://{x}/secret" for x in OTHERS]
    for i, place in enumerate(places):
        outside.put(f"/{i}", redirect=place)
    outside.put("/plain", body=b"1")
    with ConnectProxy() as proxy:
        m = mirrord(config(outside, authority, proxy))
        for i, place in enumerate(places):
            reply = m.get(f"/x/{i}")
            assert reply.status == 502 and BODY not in reply.body, (place, reply)
            assert b"internal network" in reply.body, (place, reply.body)
        assert m.get("/x/plain").body == b"1"
        assert victim.requests == 0 and proxy.targets == {f"127.0.0.1:{outside.port}"}


def test_a_host_that_the_operator_names_is_led_to(mirrord, outside, victim, authority):
    outside.put("/a", redirect=victim.url + "/secret")
    with ConnectProxy() as proxy:
        m = mirrord(config(outside, authority, proxy, f'hosts = {{"127.0.0.1:{victim.port}"}}'))
        assert m.get("/x/a").body == BODY
        assert f"127.0.0.1:{victim.port}" in proxy.targets


def test_no_link_of_an_index_leads_inside(mirrord, outside, victim, authority):
    links = "".join(f'<a href="https://{x.format(victim.port)}/secret/{i}-1.0.tar.gz">{i}-1.0.tar.gz</a>' for i, x in enumerate(LOOPBACK))
    outside.put("/simple/d/", body=f'<html><body>{links}<a href="/f/d-1.0.tar.gz">d-1.0.tar.gz</a></body></html>'.encode(), type="text/html")
    outside.put("/f/d-1.0.tar.gz", body=b"a file")
    with ConnectProxy() as proxy:
        m = mirrord(config(outside, authority, proxy, protocol="pypi"))
        page = m.get("/x/simple/d/")
        assert page.status == 200 and page.body.count(b"<a ") == 1 and b"d-1.0.tar.gz" in page.body, page.body
        assert victim.requests == 0 and proxy.targets == {f"127.0.0.1:{outside.port}"}


def test_no_sync_is_led_inside(mirrord, outside, victim, authority):
    outside.put("/", body=b'<html><body><h1>Index of /</h1><a href="a.bin">a.bin</a> 01-Jan-2024 00:00 35</body></html>', type="text/html")
    outside.put("/a.bin", redirect=victim.url + "/secret")
    with ConnectProxy() as proxy:
        m = mirrord(f"""repo "x" {{ protocol = "generic" origin = "{outside.url}/" ca_file = "{authority.pem}"
            proxy = "http://127.0.0.1:{proxy.port}" sync {{ engine = "http" backoff = "100ms" tries = 1 }} }}""")
        m.ctl("sync", "run", "x", "--wait", check=False)
        assert m.get("/x/a.bin").status == 503, "nothing was published"
        assert outside.stats("/a.bin").requests > 0
        assert victim.requests == 0 and proxy.targets == {f"127.0.0.1:{outside.port}"}


# --- names that somebody has to look up -----------------------------------------------------------------------------------

HOSTS = """127.0.0.1 localhost
198.51.100.7 files.example
127.0.0.1 inner.example
10.0.0.1 both.example
198.51.100.9 both.example
"""


@pytest.fixture
def looked_up(tmp_path):
    """A command that starts a program where these names are known, and nothing else is changed."""
    (tmp_path / "hosts").write_text(HOSTS)
    command = ["unshare", "--mount", "sh", "-c", f'mount --bind {tmp_path}/hosts /etc/hosts && exec "$@"', "sh"]
    if os.geteuid() != 0 or subprocess.run([*command, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespace may be made here")
    return command


ABSENT = "a" * 64 + ".example"  # no name is so long: nobody needs to be asked
NAMED = ["files.example", "inner.example", "both.example"]


@pytest.fixture
def led(tls, outside):
    """An origin that leads to names; whoever asks the proxy for one of those gets what is there."""
    with Origin(tls=tls) as o:
        o.put("/secret", body=BODY)
        for name in NAMED:
            outside.put(f"/{name}", redirect=f"https://{name}:{o.port}/secret")
        outside.put("/absent", redirect=f"https://{ABSENT}:{o.port}/secret")
        leads = {f"{x}:{o.port}": o.port for x in [*NAMED, "198.51.100.7", "198.51.100.9"]}
        with ConnectProxy(leads=leads) as proxy:
            proxy.leads_to = o.port
            yield proxy


def test_names_are_the_proxys_to_look_up(mirrord, outside, authority, led, looked_up):
    """As it was and is, unless the operator says otherwise: where a proxy is needed, names outside are often not known."""
    m = mirrord(config(outside, authority, led), command=looked_up)
    assert m.get("/x/inner.example").body == BODY
    assert f"inner.example:{led.leads_to}" in led.targets


def test_names_are_looked_up_and_judged_first(mirrord, outside, authority, led, looked_up):
    """The proxy is asked for the address that was judged: there is no second look-up that could find another."""
    m = mirrord(config(outside, authority, led, "proxy_resolve = true"), command=looked_up)
    assert m.get("/x/files.example").body == BODY
    assert m.get("/x/both.example").body == BODY
    reply = m.get("/x/inner.example")
    assert reply.status == 502 and b"internal network" in reply.body, reply.body
    reply = m.get("/x/absent")
    assert reply.status == 502 and b"does not resolve" in reply.body, reply.body
    assert led.targets == {f"127.0.0.1:{outside.port}", f"198.51.100.7:{led.leads_to}", f"198.51.100.9:{led.leads_to}"}
