"""Requests as long as the largest limits of http { } let in: each is answered, none ends the daemon, whatever the protocol."""
import contextlib
import re
import socket

import pytest

from harness import serving
from harness.hub import Hub
from harness.mirrord import ROOT

LIMITS = 'http { uri = "64k" header = "1m" header_fields = 1000 }\n'
REPOS = {
    "hf": 'repo "x" {{ protocol = "hf" origin = "{hub}/" xet = "on" }}',
    "service": 'repo "x" {{ protocol = "hf" origin = "{hub}/" authorization = "{secret}" xet = "on" }}',
    "pypi": 'repo "x" {{ protocol = "pypi" origin = "{web}/" }}',
    "conda": 'repo "x" {{ protocol = "conda" origin = "{web}/" }}',
    "oci": 'repo "x" {{ protocol = "oci" origin = "{web}/" }}',
    "generic": 'repo "x" {{ protocol = "generic" origin = "{web}/" forward = {{"Accept", "Accept-Language", "X-A"}} }}',
    "hosted": 'repo "x" {{ protocol = "hosted" xet = "on" }}',
    "synced": 'repo "x" {{ protocol = "generic" origin = "{web}/" sync {{ engine = "http" }} }}',
    "synced_hub": 'repo "x" {{ protocol = "hf" origin = "{hub}/" sync {{ repos = {{"me/gpt@main"}} }} }}',
    "synced_index": 'repo "x" {{ protocol = "pypi" origin = "{web}/" sync {{ requirements = {{"demo"}} }} }}',
}
IDS = ["me/gpt", "{seg}/{seg}", "me/{long}"]
PLACES = {
    "hub": ["api/models/{id}", "api/models/{id}/tree/main", "api/models/{id}/tree/{rev}/{path}", "api/models/{id}/revision/{rev}", "{id}/resolve/{rev}/{path}",
            "{id}/resolve/main/config.json", "api/models/{id}/refs", "api/models/{id}/commits/main", "api/models/{id}/paths-info/main",
            "api/models/{id}/xet-read-token/main", "api/models/{id}/auth-check", "api/resolve-cache/models/{id}/" + "a" * 40 + "/{path}", "api/models", "api/{path}",
            "api/models/{id}/xet/" + "a" * 40 + "/v1/reconstructions/" + "b" * 64],
    "index": ["simple/", "simple/demo/", "simple/{long}/", "simple/demo/+f/0123456789abcdef/{path}", "packages/{path}.whl", "+f/{long}/{path}"],
    "channel": ["noarch/repodata.json", "{path}/noarch/repodata.json.zst", "c/linux-64/repodata_shards.msgpack.zst", "t/{long}/noarch/repodata.json",
                "noarch/{long}.conda"],
    "registry": ["/v2/x/{path}/manifests/latest", "/v2/x/a/manifests/{long}", "/v2/x/a/tags/list", "/v2/x/a/blobs/sha256:" + "a" * 64,
                 "/v2/x/a/referrers/sha256:" + "a" * 64, "/v2/{path}/tags/list"],
    "tree": ["", "{path}", "{path}/", "a%2F{long}", "a//{path}", "@v1/{path}", "me/gpt/{path}", "me/gpt@{long}/{path}", "me/gpt@v1/", "simple/{long}/", "simple/a/{long}.whl"],
}
FOR = {"hf": ["hub"], "service": ["hub"], "synced_hub": ["hub"], "pypi": ["index"], "synced_index": ["index"], "conda": ["channel"], "oci": ["registry"],
       "generic": ["tree"], "synced": ["tree"], "hosted": ["tree", "hub", "registry"]}
QUERIES = ["", "?cursor=", "?list&recursive=1&x=", "?ns=", "?uploads&"]
SIZES = [3000, 11000, 12286, 15900, 16380, 30000, 63000]


def targets(protocol):
    """Paths and queries that are longer than something somewhere has room for, all within 64 KiB."""
    for size in SIZES:
        for fill in ("q", "%25", "%C3%A9"):
            long = (fill * size)[:size - size % 6]
            fits = {"long": long, "path": "/".join([fill * 40] * (size // (40 * len(fill) + 1))), "rev": long[:1200], "seg": "s" * 96}
            for place in (p for kind in FOR[protocol] for p in PLACES[kind]):
                for which in IDS if "{id}" in place else [""]:
                    path = place.replace("{id}", which).format(**fits)
                    path = path if path.startswith("/") else "/x/" + path
                    yield path
                    for query in QUERIES[1:]:
                        short = place.replace("{id}", "me/gpt").format(long="l", path="p", rev="main", seg="s")
                        yield (short if short.startswith("/") else "/x/" + short) + query + long


@pytest.mark.parametrize("protocol", REPOS)
def test_no_request_ends_the_daemon(mirrord, origin, tmp_path, protocol):
    (tmp_path / "secret").write_text("Bearer of-the-mirror")
    with Hub() as hub:
        m = mirrord(LIMITS + REPOS[protocol].format(hub=hub.url, web=origin.url, secret=f"file:{tmp_path}/secret"))
        asked = sorted({t for t in targets(protocol) if len(t) < 65000})
        for i in range(0, len(asked), 200):
            for path, (status, body) in zip(asked[i:i + 200], m.get_all(asked[i:i + 200]), strict=True):
                assert 200 <= status < 600 and status != 500, (protocol, path[:200], len(path), status, body[:200])


@pytest.mark.parametrize("protocol", ["hf", "oci", "generic", "hosted", "pypi"])
def test_no_field_ends_the_daemon(mirrord, origin, protocol, tmp_path):
    (tmp_path / "secret").write_text("Bearer of-the-mirror")
    with Hub() as hub:
        m = mirrord(LIMITS + REPOS[protocol].format(hub=hub.url, web=origin.url, secret=f"file:{tmp_path}/secret"))
        for name in ("Authorization", "Accept", "Accept-Language", "Range", "If-None-Match", "If-Match", "If-Range", "X-A", "Cookie", "Forwarded", "X-Forwarded-For",
                     "Cache-Control", "User-Agent", "Referer", "Content-Type", "Host"):
            for value in ("Bearer " + "t" * 100000, '"' + "e" * 60000 + '"', "bytes=" + "0-1," * 10000 + "0-1", "a, " * 20000):
                for place in (PLACES[FOR[protocol][0]][1:2] + PLACES[FOR[protocol][0]][9:10]):
                    path = place.replace("{id}", "me/gpt").format(long="l", path="p", rev="main", seg="s")
                    reply = m.get(path if path.startswith("/") else "/x/" + path, headers={name: value})
                    assert 200 <= reply.status < 600 and reply.status != 500, (name, value[:40], path, reply.body[:200])
        assert m.get("/healthz").status == 200


def test_heads_as_long_as_the_limit(mirrord):
    m = mirrord('repo "models" { protocol = "hosted" }\nhttp { header = "1m" header_fields = 1000 }')
    for kib, status in ((127, 200), (130, 200), (200, 200), (1020, 200), (1040, 431), (1300, 431)):
        with socket.create_connection(("127.0.0.1", m.port), timeout=120) as s:
            fields = b"".join(b"X-%d: %s\r\n" % (i, b"v" * 8180) for i in range(kib // 8))
            with contextlib.suppress(OSError):  # what is too long is answered before its end, and not read for ever
                s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + fields)
                s.sendall(b"Y: " + b"y" * (kib % 8 << 10) + b"\r\n\r\n")
            assert s.recv(12) == b"HTTP/1.1 %d" % status, kib


FIELDS = re.findall(r'^PASSES\("([\w-]+)', (ROOT / "server/repo/origin_fields.def").read_text(), re.M)


@pytest.mark.parametrize("protocol, path", [("generic", "a.bin"), ("hf", "me/gpt/resolve/main/config.json"), ("oci", "/v2/x/a/manifests/latest"),
                                            ("conda", "noarch/a-1-0.conda"), ("pypi", "simple/demo/")])
def test_no_number_of_an_origins_fields_ends_the_daemon(mirrord, protocol, path):
    """All that may pass, and 60 that may not."""
    assert len(FIELDS) > 20
    class Talker(serving.Handler):
        def do_GET(self):
            self.send_response(200)
            for name in FIELDS:
                self.send_header(name, "1")
            for i in range(60):
                self.send_header(f"x-{i}", "v" * 100)
            self.send_header("Content-Length", "2")
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"{}")
        do_HEAD = do_GET

    web = serving.Server(("127.0.0.1", 0), Talker)
    serving.run(web)
    try:
        url = f"http://127.0.0.1:{web.server_address[1]}"
        m = mirrord(LIMITS + REPOS[protocol].format(hub=url, web=url, secret=""))
        for headers in ({}, {"Range": "bytes=0-0"}, {"If-None-Match": '"x"'}, {"Authorization": "Bearer hf_x"}):
            for head in (False, True):
                reply = m.get(path if path.startswith("/") else "/x/" + path, headers=headers, head=head)
                assert 200 <= reply.status < 600, (path, headers, reply)
        assert m.get("/healthz").status == 200
    finally:
        serving.stop(web)
