"""Projects of a package index that are kept whole: requirements, what they require in their turn, and what must not be published."""
import io
import json
import random
import time
import urllib.parse
import warnings
import zipfile

import pytest

from harness.python_index import JSON, Index

SYNC = 'repo "pypi" {{ protocol = "pypi" origin = "{0}" sync {{ requirements = {{ {1} }} backoff = "50ms" tries = 1 python = {{"3.11", "3.12"}} {2} }} }}'


@pytest.fixture(params=["json", "html"])
def index(request):
    with Index(request.param) as i:
        i.wheel("Demo.Pkg", "1.0", ["dep-a>=1,<3", "dep-b; python_version < '3.5'", "dep-x; extra == 'more'"], ["more"])
        i.wheel("Demo.Pkg", "1.1", ["dep-a>=2", "dep-b ; sys_platform == 'win32'", "dep-x; extra == 'more'", "ring"], ["more"])
        i.wheel("Demo.Pkg", "2.0rc1", ["nowhere"])
        for v in ("1.0", "2.0", "2.5", "3.0"):
            i.wheel("dep-a", v)
        i.wheel("dep_x", "1.0")
        i.wheel("ring", "1", ["ring2"])
        i.wheel("ring2", "1", ["ring", "demo_pkg"])
        for py in ("310", "311", "312", "313"):
            i.wheel("native", "1.0", tags=f"cp{py}-cp{py}-manylinux_2_17_x86_64.manylinux2014_x86_64")
        i.wheel("native", "1.0", tags="cp311-cp311-win_amd64")
        i.wheel("native", "2.0", tags="cp312-cp312-manylinux_2_28_x86_64", python=">=3.12")
        i.sdist("native", "2.0", python=">=3.12")
        i.sdist("source", "1.0")
        i.wheel("pulled", "1.0")
        i.wheel("pulled", "1.1", yanked="broken")
        i.publish()
        yield i


@pytest.fixture
def start(mirrord, index):
    def begin(requirements, more="newest = 1"):
        return mirrord(SYNC.format(index.url, requirements, more))
    return begin


def run(m, *args, rc=0):
    for _ in range(50):  # the last run may still be putting its things away
        done = m.ctl("--json", "sync", "run", "pypi", "--wait", *args, check=False)
        if done.returncode != 75 or '"outcome"' in done.stdout:
            break
        time.sleep(0.1)
    assert done.returncode == rc, (done, m.ctl("sync", "logs", "pypi", check=False).stdout)
    return json.loads(done.stdout)


def lines(m):
    return m.ctl("sync", "logs", "pypi").stdout


def projects(m, wire="h1", at=""):
    return {p["name"] for p in json.loads(m.get(f"/pypi/{at}simple/", wire, headers={"Accept": JSON}).body)["projects"]}


def files(m, name, wire="h1", at=""):
    """Names of the page's files, each fetched, with its bytes."""
    here = f"/pypi/{at}simple/{name}/"
    page = m.get(here, wire, headers={"Accept": JSON})
    if page.status != 200:
        return {}
    assert page["vary"] == "accept" and page["content-type"].startswith(JSON)
    html = m.get(here, wire, headers={"Accept": "text/html"}).body.decode()
    out = {}
    for f in json.loads(page.body)["files"]:
        got = m.get(urllib.parse.urljoin(here, f["url"]), wire)
        assert got.status == 200 and "immutable" in got["cache-control"] and f'{f["url"]}#sha256={f["hashes"]["sha256"]}' in html
        if f.get("core-metadata"):
            assert m.get(urllib.parse.urljoin(here, f["url"]) + ".metadata", wire).body.startswith(b"Metadata-Version")
        out[f["filename"]] = got.body
    return out


def check(m, index, name, wanted, **kw):
    assert files(m, name, **kw) == {n: index.projects[name][n]["data"] for n in wanted}


def test_requirements_and_what_they_require(start, index, wire):
    m = start('"demo-pkg[more]", "native", "source"')
    assert m.get("/pypi/simple/demo-pkg/").status == 503
    assert run(m)["outcome"] == "published"
    index.down()
    assert projects(m, wire) == {"demo-pkg", "dep-a", "dep-x", "ring", "ring2", "native", "source"}
    check(m, index, "demo-pkg", ["Demo_Pkg-1.1-py3-none-any.whl"], wire=wire)
    check(m, index, "dep-a", ["dep_a-3.0-py3-none-any.whl"], wire=wire)
    check(m, index, "native", ["native-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
                               "native-2.0-cp312-cp312-manylinux_2_28_x86_64.whl"], wire=wire)
    check(m, index, "source", ["source-1.0.tar.gz"], wire=wire)
    moved = m.get("/pypi/simple/Demo_Pkg", wire)
    assert (moved.status, moved["location"]) == (301, "./demo-pkg/")
    assert m.get("/pypi/simple/nowhere/", wire).status == 404
    assert m.get("/pypi/simple/demo-pkg/", wire, headers={"Accept": "image/png"}).status == 406


def test_no_change_costs_pages_alone(start, index):
    m = start('"demo-pkg"')
    run(m)
    before = index.origin.requests
    assert run(m)["outcome"] == "unchanged"
    assert index.origin.requests - before == 4  # demo-pkg, dep-a, ring, ring2


def test_new_versions_snapshots_and_the_way_back(start, index):
    m = start('"dep-a<4"')
    run(m)
    index.wheel("dep-a", "3.1")
    index.publish()
    assert run(m)["seq"] == 2
    check(m, index, "dep-a", ["dep_a-3.1-py3-none-any.whl"])
    check(m, index, "dep-a", ["dep_a-3.0-py3-none-any.whl"], at="@v1/")
    m.ctl("snapshot", "rollback", "pypi", "v1")
    check(m, index, "dep-a", ["dep_a-3.0-py3-none-any.whl"])


def test_conflicting_requirements_are_a_union(start, index):
    m = start('"dep-a<2", "dep-a>=2,<3", "dep-a!=3.0"')
    run(m)
    check(m, index, "dep-a", ["dep_a-1.0-py3-none-any.whl", "dep_a-2.5-py3-none-any.whl"])


def test_pinned_yanked_pre_releases_and_all(start, index):
    m = start('"pulled==1.1", "demo-pkg==2.0rc1", "native==1.0"', 'newest = 0 files = all dependencies = false')
    run(m)
    check(m, index, "pulled", ["pulled-1.1-py3-none-any.whl"])
    check(m, index, "demo-pkg", ["Demo_Pkg-2.0rc1-py3-none-any.whl"])
    assert len(files(m, "native")) == 5 and projects(m) == {"pulled", "demo-pkg", "native"}


def test_a_file_of_requirements(start, index, tmp_path):
    (tmp_path / "more.txt").write_text("ring\n")
    (tmp_path / "r.txt").write_text("# all\ndep-a==1.0 --hash=sha256:00\n-r more.txt\n--index-url https://x.example\npulled\n")
    m = start(f'"file:{tmp_path}/r.txt"')
    run(m)
    check(m, index, "dep-a", sorted(["dep_a-1.0-py3-none-any.whl", "dep_a-3.0-py3-none-any.whl"]))
    check(m, index, "pulled", ["pulled-1.0-py3-none-any.whl"])
    (tmp_path / "r.txt").unlink()
    assert "r.txt" in run(m, rc=69)["why"]
    check(m, index, "pulled", ["pulled-1.0-py3-none-any.whl"])


def test_wheels_that_share_their_metadata(start, index):
    m = start('"native==1.0"')
    run(m)
    check(m, index, "native", [f"native-1.0-{py}-{py}-manylinux_2_17_x86_64.manylinux2014_x86_64.whl" for py in ("cp311", "cp312")])


NOISE = random.Random(1).randbytes(300000)


@pytest.mark.parametrize("ranges", [True, False])
def test_what_a_wheel_requires_is_read_out_of_it(start, index, ranges, wire):
    name = index.wheel("silent", "1.0", ["dep-a<3", "dep-x; extra == 'all'"], sidecar=False, inside={"silent/big": NOISE})
    index.wheel("small", "1.0", ["ring"], sidecar=False)
    index.ranges = ranges
    index.publish()
    m = start('"silent[all]", "small"')
    run(m)
    assert projects(m, wire) == {"silent", "small", "dep-a", "dep-x", "ring", "ring2", "demo-pkg"}
    check(m, index, "dep-a", ["dep_a-2.5-py3-none-any.whl", "dep_a-3.0-py3-none-any.whl"], wire=wire)
    check(m, index, "silent", [name], wire=wire)
    spans = index.origin.stats(f"/pool/{name}").spans
    size = len(index.projects["silent"][name]["data"])
    # HTML tells no size: the file's begin is asked for, which tells it.
    assert [b - a < size for a, b in spans[:-1]] == [ranges] * (1 if not ranges or index.form == "json" else 2)
    assert f"no metadata for {name}" in lines(m)
    page = json.loads(m.get("/pypi/simple/silent/", wire, headers={"Accept": JSON}).body)
    assert not page["files"][0].get("core-metadata")  # as the index has it
    before = index.origin.requests
    assert run(m)["outcome"] == "unchanged"
    assert index.origin.requests - before == 7  # pages alone


def test_one_wheel_of_a_version_and_platform_is_read(start, index):
    names = [index.wheel("many", "1.0", [dep], tags=f"{py}-{py}-{platform}", sidecar=False, inside={"many/x": NOISE[:size]})
             for py, platform, size, dep in (("cp311", "manylinux_2_17_x86_64", 9000, "dep-a"),
                                             ("cp312", "manylinux_2_17_x86_64", 8000, "dep-a"),
                                             ("cp311", "manylinux_2_17_aarch64", 7000, "ring"))]
    index.publish()
    m = start('"many"', 'platforms = {"manylinux_2_28_x86_64", "manylinux_2_28_aarch64"}')
    run(m)
    check(m, index, "many", names)
    assert projects(m) == {"many", "dep-a", "ring", "ring2", "demo-pkg"}
    if index.form == "json":  # which tells sizes
        assert [index.origin.stats(f"/pool/{n}").ranged for n in names] == [0, 1, 1]


def bad_zip(what, data):
    if what == "no zip":
        return b"PK" * 1000
    out = io.BytesIO(data)
    if what == "twice":
        with warnings.catch_warnings(), zipfile.ZipFile(out, "a") as z:
            warnings.simplefilter("ignore")
            z.writestr("bad-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n")
    elif what == "bomb":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr("bad-1.0.dist-info/METADATA", b"Name: bad\n" + b"\n" * (50 << 20))
    elif what == "offset":
        at = data.rindex(b"PK\5\6")
        out = io.BytesIO(data[:at + 16] + b"\xff\xff\xff\x7f" + data[at + 20:])
    return out.getvalue()


@pytest.mark.parametrize("what, words", [("no zip", "end record is missing"), ("twice", "more than once"), ("bomb", "larger than 4 MiB"),
                                         ("offset", "not directly before its end")])
def test_a_wheel_that_lies(start, index, what, words):
    name = index.wheel("bad", "1.0", ["dep-a"], sidecar=False)
    index.projects["bad"][name]["data"] = bad_zip(what, index.projects["bad"][name]["data"])
    index.publish()
    m = start('"bad"')
    why = run(m, rc=69)["why"]
    assert f"no metadata for {name}" in why and words in why
    assert m.get("/pypi/simple/bad/").status == 503


@pytest.mark.parametrize("what", ["gone", "digest", "cut", "size"])
def test_a_wheel_that_cannot_be_read_ends_the_run(start, index, what):
    m = start('"dep-a", "source"')
    run(m)
    name = index.wheel("source", "2.0", ["dep-a"], sidecar=False, inside={"x": NOISE}, digest="0" * 64 if what == "digest" else None)
    index.ranges = what != "digest"
    index.publish()
    if what == "gone":
        index.origin.put(f"/pool/{name}", status=404)
    elif what == "cut":
        index.origin.stats(f"/pool/{name}").wall_at = len(NOISE)
    elif what == "size":
        index.origin.put(f"/pool/{name}", body=index.projects["source"][name]["data"] + b"more")
    run(m, rc=69)
    assert projects(m) == {"dep-a", "source"} and list(files(m, "source")) == ["source-1.0.tar.gz"]


def test_too_big_to_be_read_whole(start, index):
    name = index.wheel("huge", "1.0", ["dep-a"], sidecar=False)
    index.projects["huge"][name]["data"] = bytes((32 << 20) + 1)
    index.ranges = False
    index.publish()
    assert "does not support range requests" in run(start('"huge"'), rc=69)["why"]


def test_what_rules_leave_out_is_not_there_for_the_choice(start, index):
    m = start('"native", "dep-a"', 'newest = 1 sdists = always filter = {"- dep_a-3*", "- /native/*cp312*", "- *.tar.gz"}')
    run(m)
    check(m, index, "dep-a", ["dep_a-2.5-py3-none-any.whl"])
    check(m, index, "native", ["native-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"])


def test_they_are_kept_where_nobody_asks(start, index):
    index.wheel("silent", "1.0", ["dep-a"], sidecar=False)
    index.publish()
    m = start('"silent"', "dependencies = false")
    run(m)
    check(m, index, "silent", ["silent-1.0-py3-none-any.whl"])


def test_held_when_nothing_satisfies(start, index):
    m = start('"dep-a", "pulled"')
    run(m)
    del index.projects["pulled"]["pulled-1.0-py3-none-any.whl"]
    index.publish()
    held = run(m, rc=75)
    assert held["outcome"] == "held" and '"pulled"' in held["why"]
    check(m, index, "dep-a", ["dep_a-3.0-py3-none-any.whl"])
    assert "pulled-1.0-py3-none-any.whl" in files(m, "pulled")
    m.ctl("sync", "approve", "pypi")
    assert projects(m) == {"dep-a"}


@pytest.mark.parametrize("what", ["hash", "metadata hash", "page", "page gone", "file gone"])
def test_trouble_leaves_the_old_snapshot(start, index, what):
    m = start('"dep-a", "source"')
    run(m)
    before = files(m, "dep-a")
    name = index.wheel("dep-a", "9.0", digest="0" * 64 if what == "hash" else None,
                       meta_digest="0" * 64 if what == "metadata hash" else None)
    index.publish()
    if what == "page":
        index.origin.put("/simple/dep-a/", body=b'{"files": [{', type=JSON)
    elif what == "page gone":
        index.origin.put("/simple/source/", status=404)
    elif what == "file gone":
        index.origin.put(f"/pool/{name}", status=404)
    assert run(m, rc=75 if what == "page gone" else 69)["outcome"] == ("held" if what == "page gone" else "failed")
    assert files(m, "dep-a") == before
