"""What of an upstream is mirrored: filter rules, sizes, links; how they take effect, and what they must not."""
import os
import subprocess

import pytest

from harness.mirrord import BUILD
from harness.rsyncd import Rsyncd
from harness.tree_origin import TreeOrigin
from system.test_sync import lines, run, served

CONFIG = 'repo "x" {{ protocol = "generic" origin = "{0}" sync {{ backoff = "100ms" tries = 2 {1} }} }}'
MAIN = 'filter = { "- *.iso", "+ /pool/", "+ /pool/main/***", "- *" }'
FILES = {"pool/main/a/one": b"1", "pool/main/b/two": b"22" * 100, "pool/main/big.iso": b"i", "pool/other/three": b"3",
         "dists/x/Release": b"r", "top": b"t", **{f"junk/{i}": b"j" for i in range(20)}}


@pytest.fixture(params=["rsync", "http"])
def upstream(request, client, tmp_path):
    """(url, what was asked of it): the same tree over both."""
    if request.param == "http":
        with TreeOrigin(dict(FILES)) as o:
            yield o.url, o.requests
        return
    for path, data in FILES.items():
        at = tmp_path / "src" / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(data)
    d = Rsyncd(client("rsync"), tmp_path, {"m": (tmp_path / "src", [])})
    yield d.url + "/m/", None
    d.close()


def names(m):
    return {e["path"] for e in served(m)["entries"] if not e["path"].endswith("/")}


def settings(m, url, text):
    m.config = CONFIG.format(url, text)
    m.reload()


def test_only_what_is_wanted_comes(mirrord, upstream):
    url, asked = upstream
    m = mirrord(CONFIG.format(url, MAIN))
    assert run(m)["outcome"] == "published"
    assert names(m) == {"pool/main/a/one", "pool/main/b/two"}
    if asked is not None:  # no page of a folder that is out
        assert not any(p.startswith(("junk/", "dists/", "pool/other/")) for p in asked)
    assert run(m)["outcome"] == "unchanged"


def test_a_rule_takes_effect_at_the_next_run(mirrord, upstream):
    """Though the probe would say that nothing changed, and though most of the tree goes."""
    url, _ = upstream
    m = mirrord(CONFIG.format(url, 'probe = "top"'))
    assert run(m)["outcome"] == "published" and names(m) == set(FILES)
    assert "the probe shows" not in lines(m)
    run(m)
    assert "the probe shows that nothing changed" in lines(m)
    settings(m, url, 'probe = "top" filter = { "- /junk/" }')
    done = run(m)
    assert (done["outcome"], done["gone"]) == ("published", 20 + ("rsync" in url)), lines(m)
    assert "published entries are now excluded by filter" in lines(m)
    assert names(m) == {p for p in FILES if not p.startswith("junk/")}
    run(m)
    assert "the probe shows that nothing changed" in lines(m)
    settings(m, url, 'probe = "top"')
    assert run(m)["outcome"] == "published" and names(m) == set(FILES)


def test_what_the_upstream_takes_away_still_counts(mirrord, client, tmp_path):
    """A rule that comes while the upstream empties itself hides nothing of that; one that takes all is held."""
    src = tmp_path / "src"
    for i in range(30):
        (src / f"a{i % 3}").mkdir(parents=True, exist_ok=True)
        (src / f"a{i % 3}" / str(i)).write_bytes(b"x")
    d = Rsyncd(client("rsync"), tmp_path, {"m": (src, [])})
    m = mirrord(CONFIG.format(d.url + "/m/", ""))
    assert run(m)["outcome"] == "published"
    for i in range(0, 30, 3):
        (src / "a0" / str(i)).unlink()
    for i in range(1, 25, 3):
        (src / "a1" / str(i)).unlink()
    settings(m, d.url + "/m/", 'filter = { "- /a2/" }')
    done = run(m, rc=75)
    assert done["outcome"] == "held" and "more than half" in done["why"], done
    settings(m, d.url + "/m/", 'filter = { "- *" }')
    done = run(m, rc=75)
    assert done["outcome"] == "held" and "empty" in done["why"], done
    assert len(names(m)) == 30
    d.close()


def test_sizes(mirrord, upstream):
    url, _ = upstream
    m = mirrord(CONFIG.format(url, 'max_size = "100"'))
    assert run(m)["outcome"] == "published"
    assert names(m) == set(FILES) - {"pool/main/b/two"}


@pytest.mark.parametrize("links", ["keep", "safe", "skip"])
def test_links(mirrord, client, tmp_path, links):
    """`safe` is what rsync's --safe-links lets through."""
    src, rsync = tmp_path / "src", client("rsync")
    (src / "d/e").mkdir(parents=True)
    (src / "d/file").write_bytes(b"f")
    for i, target in enumerate(["file", "../d/file", "..", "../..", "../../x", "/etc/passwd", "e/../file", "./file", "../../src/d/file", "e/..", "..x"]):
        os.symlink(target, src / "d" / f"link{i}")
        os.symlink(target, src / f"top{i}")
    d = Rsyncd(rsync, tmp_path, {"m": (src, [])})
    url = d.url + "/m/"
    m = mirrord(CONFIG.format(url, f'links = "{links}"'))
    assert run(m)["outcome"] == "published"
    options = {"keep": ["-rlt"], "safe": ["-rlt", "--safe-links"], "skip": ["-rt"]}[links]
    subprocess.run([rsync, *options, url, tmp_path / "dst/"], check=True, capture_output=True)
    want = {str(p.relative_to(tmp_path / "dst")) for p in (tmp_path / "dst").rglob("*") if p.is_symlink() or p.is_file()}
    assert names(m) == want
    d.close()


@pytest.mark.parametrize("text,said", [
    ('filter = {\n"- *.iso",\n"merge /etc/rules" }', 'mirrord.conf:6: filter: "merge /etc/rules", rules cannot be read from files'),
    ('filter = { ": .rsync-filter" }', "rules cannot be read from files"),
    ('filter = { "+ /pool/main/***", "- *" }', 'matches nothing, because the folder /pool above it is excluded, put "+ /pool/" before it'),
    ('filter = { "*.iso" }', 'a rule must begin with "+ " or "- "'),
    ('filter = { "P x" }', "have no effect in a sync"),
    ('links = "some"', "links"),
])
def test_what_cannot_be_is_refused(tmp_path, text, said):
    conf = tmp_path / "mirrord.conf"
    conf.write_text(f'state_dir = "{tmp_path}/s"\nlisten "127.0.0.1:0" {{ }}\nrepo "x" {{ protocol = "generic" origin = "http://127.0.0.1:1/"\n'
                    f"sync {{ {text} }} }}\n")
    done = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True)
    assert done.returncode == 78 and said in done.stderr, done.stderr
