"""The pages as a reader sees them: errors are pages to a browser and text to all others; on a phone nothing is cut off."""
import html.parser
import os
import re
import subprocess

import pytest

from harness.browser import Browser
from harness.hub import Big
from harness.mirrord import SLOW, free_port, is_free
from harness.tls import Authority
from harness.tree_origin import TreeOrigin

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"}
PIP = {"Accept": "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01"}
LONG = "a-name-that-somebody-took-for-a-good-idea_with-all-the-options-2024.11.03-cuda12.4-cudnn9-py312h4bc722e_203.tar.zst"


class Text(html.parser.HTMLParser):
    def __init__(self, source):
        super().__init__()
        self.tags, self.text, self.titles = [], "", ""
        self.feed(re.sub("<style>.*?</style>", "", source, flags=re.S))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def refusing(mirrord):
    return mirrord(f"""repo "gone" {{ protocol = "generic" origin = "http://127.0.0.1:{free_port()}/" }}
                       repo "closed" {{ protocol = "hosted" access {{ anonymous = none }} }}
                       repo "models" {{ protocol = "hosted" }}""")


def test_an_error_is_a_page_to_a_browser_alone(refusing, wire):
    m = refusing
    some = {"Authorization": f"Bearer {m.token('some', 'read:models/*')}"}
    for path, headers, status in (("/nowhere", {}, 404), ("/-/repos/none/", {}, 404), ("/models/me/none/x", {}, 404), ("/models/me/", {}, 404),
                                  ("/gone/x", {}, 502), ("/closed/me/x/y", {}, 401), ("/closed/me/x/y", some, 403), ("/closed/me/x/y", {"Authorization": "Bearer mrd_no"}, 401)):
        plain = m.get(path, wire, headers=headers)
        assert plain.status == status and plain["content-type"] == "text/plain; charset=utf-8" and plain["vary"] == "accept", (path, plain)
        assert plain["content-security-policy"].startswith("sandbox")
        assert m.get(path, wire, headers={**headers, **PIP})["content-type"] == "text/plain; charset=utf-8"
        shown = m.get(path, wire, headers={**headers, **BROWSER})
        assert (shown.status, shown["content-type"], shown["vary"]) == (status, "text/html; charset=utf-8", "accept"), path
        assert shown["content-security-policy"].startswith("default-src 'none'") and shown["www-authenticate"] == plain["www-authenticate"]
        page = Text(shown.body.decode())
        said = plain.body.decode().strip().replace("`", "")
        assert said in page.text and f"mirrord / {status} " in page.text and "viewport" in shown.body.decode(), (page.text, said)
    out = m.get("/-/logout", wire, headers=BROWSER)
    assert out.status == 401 and "mirrord / logged out" in Text(out.body.decode()).text


def test_an_errors_page_has_nothing_of_the_requests_markup(refusing):
    m = refusing
    token = m.token("x", "read:models/*")
    shown = m.get("/closed/me/x/%3Cscript%3Ealert(1)", headers={**BROWSER, "Authorization": f"Bearer {token}"})
    page = Text(shown.body.decode())
    assert shown.status == 403 and "script" not in page.tags and "<script>" in page.text


@pytest.fixture
def full(mirrord, hub):
    """Each kind of page with names as long as they come."""
    hub.repo("an-organisation/" + "x" * 80, files={"README.md": b"# demo\n", "a/" + LONG: Big(1 << 20)})
    with TreeOrigin({"README": b"x", LONG: os.urandom(2000), "a:b.txt": b"1", "sub/x": b"1"}) as tree:
        m = mirrord(f"""{hub.config()}
            repo "models" {{ protocol = "hosted" }}
            repo "empty" {{ protocol = "hosted" }}
            repo "debian" {{ protocol = "generic" origin = "{tree.url}" sync {{ backoff = "100ms" tries = 2 max_delete = "1" }} }}
            repo "never" {{ protocol = "generic" origin = "{tree.url}" sync {{ backoff = "100ms" tries = 2 }} }}
            repo "a-repo-with-a-name-that-is-long" {{ protocol = "generic" origin = "http://127.0.0.1:{free_port()}/compute/{'y' * 60}/repos/" }}""")
        m.ctl("sync", "run", "debian", "--wait")
        tree.rm("README", "sub/x", LONG)
        m.ctl("sync", "run", "debian", "--wait", check=False)  # held: that is more than max_delete
        token = m.token("ci", "publish:models/*")
        for path in ("me/gpt/config.json", "me/" + "z" * 80 + "/" + LONG):
            assert m.put("/models/" + path, b"x", token=token).status == 201
        assert m.get("/hf/an-organisation/" + "x" * 80 + "/resolve/main/README.md").status == 200
        for n in range(4):
            m.get(f"/a-repo-with-a-name-that-is-long/{n}")
        yield m


PAGES = ["/", "/-/", "/-/repos/hf/", "/-/repos/hf/?q=none", "/-/repos/hf/an-organisation/" + "x" * 80, "/-/repos/models/", "/-/repos/models/me/" + "z" * 80,
         "/models/", "/models/me/", "/models/me/" + "z" * 80 + "/", "/empty/", "/debian/", "/debian/@v1/", "/nowhere/" + LONG, "/-/logout"]


def test_nothing_is_wider_than_the_screen(full, client, tmp_path):
    with Browser(client("chromium"), tmp_path) as b:
        for width in (400, 800, 1000, 1280):
            for path in PAGES:
                b.show(full.url(path), width)
                b.ask("document.querySelectorAll('details').forEach(d => { d.open = true; })")
                assert b.overflow() == [], (path, width)
                assert b.ask("document.documentElement.scrollWidth") <= width, (path, width)
                assert b.ask("document.title").endswith("mirrord")
        b.show(full.url("/"), 400)
        said = b.ask("getComputedStyle(document.querySelector('.repos td:nth-child(4)'), '::before').content")
        assert said == '"requests "', "a row says by itself what its numbers are"
        for column, title in ((5, '"snapshot "'), (7, '"size "')):
            assert b.ask(f"getComputedStyle(document.querySelector('.syncs td:nth-child({column})'), '::before').content") == title
        assert b.ask("getComputedStyle(document.querySelector('.syncs td:nth-child(2)')).paddingRight") == "0px", "the gap alone is between them"


def test_numbers_that_come_later_move_nothing(full, client, tmp_path):
    """The rates are known from the second look on; a tile has room for its own."""
    with Browser(client("chromium"), tmp_path) as b:
        for width in (400, 1200):
            b.show(full.url("/"), width)
            tops = b.ask("""(async () => {
                const top = () => document.querySelector('.repos').getBoundingClientRect().top, before = top();
                while (!at('out-rate').textContent) await new Promise(r => setTimeout(r, 100));
                return [before, top()];
            })()""")
            assert tops[0] == tops[1], width


def test_both_colour_schemes_are_ours(full, client, tmp_path):
    with Browser(client("chromium"), tmp_path) as b:
        for path in ("/", "/debian/", "/nowhere"):
            papers = set()
            for scheme in ("light", "dark"):
                b.show(full.url(path), 400, scheme)
                papers.add(b.ask("getComputedStyle(document.body).backgroundColor"))
            assert len(papers) == 2, path


def test_a_port_is_written_as_it_is(mirrord):
    """Whatever it begins with: the client's own host and port are filled in elsewhere."""
    door = next(filter(is_free, range(1025, 2000)))
    m = mirrord(f'repo "models" {{ protocol = "hosted" }}\nrsync "127.0.0.1:{door}" {{ }}')
    page = m.get("/").body.decode()
    assert f"rsync://127.0.0.1:{door}/models/" in page and f"http://127.0.0.1:{m.port}/models" in page



def test_an_upload_works_as_the_page_writes_it(mirrord):
    """A token does not cross plain HTTP, so the lines of uploads name the TLS listener, on the page over plain HTTP too."""
    m = mirrord('repo "models" { protocol = "hosted" }')
    (m.folder / "FILE").write_bytes(b"weights")
    env = {**os.environ, "TOKEN": m.token("ci", "publish:models/*")}
    for wire in ("h1", "h2"):
        page = html.unescape(m.get("/", wire).body.decode())
        line, = re.findall(r"<pre>(.*curl .* -T FILE .*)</pre>", page)
        assert f"https://127.0.0.1:{m.tls_port}/models/OWNER/NAME/FILE" in line, line
        line = line.replace("=cert.pem", f"={m.cert[0]}").replace("curl ", "curl -fsS ")
        subprocess.run(["sh", "-c", line], cwd=m.folder, env=env, check=True, timeout=60 * SLOW)
        assert m.get("/models/OWNER/NAME/FILE").body == b"weights"


@pytest.mark.parametrize("trusted", [True, False])
def test_an_upload_names_no_authority_that_clients_have(mirrord, tmp_path, trusted):
    """Where the system's authorities vouch for the certificate, the line works as it stands."""
    authority = Authority(tmp_path)
    m = mirrord('repo "models" { protocol = "hosted" }')
    m.stop()
    m.cert = authority.issue("mirror")
    m.env = {"SSL_CERT_FILE": str(authority.pem)} if trusted else {}
    m.start()
    (m.folder / "FILE").write_bytes(b"weights")
    line, = re.findall(r"<pre>(.*curl .* -T FILE .*)</pre>", html.unescape(m.get("/").body.decode()))
    assert ("cert.pem" in line) != trusted, line
    line = line.replace("=cert.pem", f"={authority.pem}").replace("curl ", "curl -fsS ")
    clean = {k: v for k, v in os.environ.items() if k not in ("CURL_CA_BUNDLE", "SSL_CERT_DIR")}
    env = {**clean, **m.env, "TOKEN": m.token("ci", "publish:models/*")}
    subprocess.run(["sh", "-c", line], cwd=m.folder, env=env, check=True, timeout=60 * SLOW)
    assert m.get("/models/OWNER/NAME/FILE").body == b"weights"
