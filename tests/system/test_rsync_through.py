"""All the way through: the installed rsync daemon, the pipeline, a snapshot, the installed rsync client."""
import json
import os
import subprocess

import pytest

from harness.mirrord import free_port
from harness.rsyncd import Rsyncd, Tree, facts

SYNC = 'sync { backoff = "100ms" tries = 2 max_delete = "100%" }'


def config(url, more=""):
    port = free_port()
    return port, (f'repo "x" {{ protocol = "generic" origin = "{url}" {more} {SYNC} }}\n'
                  f'rsync "127.0.0.1:{port}" {{ }}')


def run(m, rc=0):
    done = m.ctl("--json", "sync", "run", "x", "--wait", check=False)
    assert done.returncode == rc, (done, m.ctl("sync", "logs", "x", check=False).stdout)
    return json.loads(done.stdout) if done.stdout else {}


def files(folder):
    return {p: f for p, f in facts(folder)[0].items() if f[0] == "f"}


@pytest.mark.timeout(86400)
@pytest.mark.parametrize("seed", range(int(os.environ.get("TREES_THROUGH", "3"))))
def test_random_trees_go_through(mirrord, client, tmp_path, seed):
    rsync = client("rsync")
    tree = Tree(tmp_path / "src", 1000 + seed)
    d = Rsyncd(rsync, tmp_path, {"m": (tmp_path / "src", [])})
    port, text = config(d.url + "/m/")
    m = mirrord(text)
    try:
        for change in (tree.grow, tree.edit):
            change(60)
            assert run(m)["outcome"] == "published"
            copy = subprocess.run([rsync, "-rltH", "--delete", f"rsync://127.0.0.1:{port}/x/", f"{tmp_path}/dst/"],
                                  capture_output=True, text=True)
            assert copy.returncode == 0, copy.stderr
            (want, groups), (got, got_groups) = facts(tmp_path / "src"), facts(tmp_path / "dst")
            assert set(got) == set(want) and groups == got_groups
            if change == tree.grow:
                assert link_groups(tmp_path / "dst") == link_groups(tmp_path / "src")
            # where size and second stayed the client saw no reason to ask
            assert {p: (f, want[p]) for p, f in got.items() if f != want[p] and
                    (f[:2], f[2] // 10 ** 9) != (want[p][:2], want[p][2] // 10 ** 9)} == {}
            m_again = run(m)
            assert m_again["outcome"] == "unchanged", m_again
    finally:
        d.close()


CVS = [b"RCS", b"CVS/x", b"cvslog.1", b"tags", b"a~", b"~", b"#x", b".#x", b",", b"_$x", b"x$", b"x.old", b"x.BAK", b"x.o/y", b"x.so",
       b"x.so.1", b"core", b"core.1", b"cores", b".svn", b"d/.git/HEAD", b".hg/x", b"lib.a", b".make.state", b".del-x", b"TAGS/x", b"x.Z",
       b"x.z", b"a/b/x.orig", b"plain", b"d/tag", b"deep/er/plain.c"]


def test_cvs_exclude_as_the_installed_daemon(mirrord, client, tmp_path):
    src, rsync = tmp_path / "src", client("rsync")
    for name in CVS:
        path = os.path.join(os.fsencode(src), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(name)
    for folder, _, names in os.walk(src, topdown=False):  # a client leaves times alone that are of the second in which it writes
        for path in [os.path.join(folder, n) for n in names] + [folder]:
            os.utime(path, (10 ** 9, 10 ** 9))
    d = Rsyncd(rsync, tmp_path, {"x": (src, [])})
    port, text = config(d.url + "/x/")

    def copy(*options):
        """What each server gives: exit code, words, files."""
        found = []
        for url in (d.url, f"rsync://127.0.0.1:{port}"):
            to = tmp_path / f"dst{len(list(tmp_path.glob('dst*')))}"
            done = subprocess.run([rsync, *options[:-1], f"{url}/x/{options[-1]}", f"{to}/"], capture_output=True, text=True)
            found.append((done.returncode, done.stderr, facts(to)[0]))
        return found
    try:
        m = mirrord(text)
        assert run(m)["outcome"] == "published"
        for options in (("-rtC", ""), ("-rtC", "--include=*.o", "--exclude=plain", ""), ("-rtC", "--delete", "--protocol=30", "d"),
                        ("-rtCs", "a/b/"), ("-rtC", "x.o"), ("-rtC", "-f-_/core*", "")):
            theirs, ours = copy(*options)
            assert ours[0] == theirs[0] and ours[2] == theirs[2], options
        assert "plain" in copy("-rtC", "")[1][2] and "x.o" not in copy("-rtC", "")[1][2]
        (src / "d/.cvsignore").write_text("tag\n")
        run(m)
        for options in (("-rtC", ""), ("-rtC", "d"), ("-rtC", "d/tag")):
            _, ours = copy(*options)
            assert ours[0] == 4 and ".cvsignore" in ours[1] and not ours[2], ours
        theirs, ours = copy("-rtC", "deep")  # where no such file counts
        assert ours[0] == theirs[0] == 0 and ours[2] == theirs[2] != {}
    finally:
        d.close()


def links(folder):
    return facts(folder)[1]


def test_hard_links_arrive_as_hard_links(mirrord, client, tmp_path):
    src = tmp_path / "src"
    for group, names in {"one": ("z/first", "a/second", "m"), "two": ("b", "c")}.items():
        for name in names:
            (src / name).parent.mkdir(parents=True, exist_ok=True)
            if name != names[0]:
                os.link(src / names[0], src / name)
            else:
                (src / name).write_text(group * 1000)
    (src / "alone").write_text("one" * 1000)
    rsync = client("rsync")
    d = Rsyncd(rsync, tmp_path, {"m": (src, [])})
    port, text = config(d.url + "/m/")
    try:
        m = mirrord(text)
        run(m)
        url = f"rsync://127.0.0.1:{port}/x/"

        def copy(to, *options):
            subprocess.run([rsync, "-rltH", "--delete", *options, url, tmp_path / to], check=True, capture_output=True)
            return links(tmp_path / to)
        one, two = frozenset({"z/first", "a/second", "m"}), frozenset({"b", "c"})
        for way in ((), ("--protocol=30",), ("-z",), ("--no-inc-recursive",), ("--delete-after",)):
            assert copy("all" + "".join(way), *way) == {one, two}
        assert files(tmp_path / "all") == files(src)
        # only what is within the part that was asked for, and whoever of a group comes first in it leads
        assert copy("part", "--exclude=/b", "--exclude=/m") == {frozenset({"z/first", "a/second"})}
        assert copy("rest", "--exclude=/z") == {frozenset({"a/second", "m"}), two}
        assert copy("single", "--include=/b", "--exclude=*") == set()
        subprocess.run([rsync, "-rlt", url, tmp_path / "plain"], check=True, capture_output=True)
        assert links(tmp_path / "plain") == set()
        # a link that went its own way, and one that is new
        (src / "m").unlink()
        (src / "m").write_text("other")
        os.link(src / "alone", src / "beside")
        run(m)
        assert copy("all") == {one - {"m"}, two, frozenset({"alone", "beside"})}
        assert files(tmp_path / "all") == files(src)
    finally:
        d.close()


def link_groups(folder):
    """Symbolic links that are hard links of each other."""
    groups = {}
    for at, folders, names in os.walk(folder):
        for path in (os.path.join(at, n) for n in folders + names):
            if os.path.islink(path) and os.lstat(path).st_nlink > 1:
                groups.setdefault(os.lstat(path).st_ino, set()).add(os.path.relpath(path, folder))
    return {frozenset(g) for g in groups.values() if len(g) > 1}


def test_links_that_are_hard_links_of_each_other(mirrord, client, tmp_path):
    src, rsync = tmp_path / "src", client("rsync")
    (src / "a").mkdir(parents=True)
    (src / "plain").write_text("x")
    os.symlink("../elsewhere", src / "z")
    os.utime(src / "z", ns=(10 ** 18, 10 ** 18 + 5), follow_symlinks=False)
    for name in ("a/one", "m"):
        os.link(src / "z", src / name, follow_symlinks=False)
    os.symlink("../elsewhere", src / "alone")  # says the same, and is another
    os.utime(src / "alone", ns=(10 ** 18, 10 ** 18 + 5), follow_symlinks=False)
    os.link(src / "plain", src / "q")
    for path in (src / "plain", src / "a"):  # a client leaves times alone that are of the second in which it writes
        os.utime(path, (10 ** 9, 10 ** 9))
    d = Rsyncd(rsync, tmp_path, {"x": (src, [])})
    port, text = config(d.url + "/x/")
    mirrored = free_port()
    count = iter(range(1000))

    def both(*options):
        """What the installed daemon gives, and what we give."""
        found = []
        for url in (d.url, f"rsync://127.0.0.1:{port}"):
            to = tmp_path / f"dst{next(count)}"
            done = subprocess.run([rsync, *options, f"{url}/x/", f"{to}/"], capture_output=True, text=True)
            assert done.returncode == 0, done
            found.append((facts(to), link_groups(to)))
        return found
    try:
        m = mirrord(text)
        assert run(m)["outcome"] == "published"
        for options in (("-rltH",), ("-rltH", "--protocol=30"), ("-rltHz", "--no-inc-recursive"), ("-rltH", "--exclude=/z"), ("-rltH", "--exclude=m"),
                        ("-rtH",), ("-rlt",), ("-rltH", "--include=m", "--exclude=*")):
            theirs, ours = both(*options)
            assert ours == theirs, options
        assert both("-rltH")[1][1] == {frozenset({"z", "a/one", "m"})}
        assert run(m)["outcome"] == "unchanged"
        # a mirror of the mirror
        edge_sync = SYNC.replace("{", '{ engine = "mirrord"', 1)
        edge = mirrord(f'repo "x" {{ protocol = "generic" origin = "{m.url("/x/")}" {edge_sync} }}\n'
                       f'rsync "127.0.0.1:{mirrored}" {{ }}')
        assert run(edge)["outcome"] == "published"
        subprocess.run([rsync, "-rltH", f"rsync://127.0.0.1:{mirrored}/x/", f"{tmp_path}/edge/"], check=True, capture_output=True)
        assert link_groups(tmp_path / "edge") == {frozenset({"z", "a/one", "m"})}
        # one goes its own way, one comes in
        (src / "m").unlink()
        os.symlink("other", src / "m")
        os.utime(src / "m", (10 ** 9, 10 ** 9), follow_symlinks=False)
        (src / "alone").unlink()
        os.link(src / "z", src / "alone", follow_symlinks=False)
        assert run(m)["outcome"] == "published"
        theirs, ours = both("-rltH")
        assert ours == theirs and ours[1] == {frozenset({"z", "a/one", "alone"})}
        assert run(m)["outcome"] == "unchanged"
    finally:
        d.close()


def test_the_top_folder_keeps_its_own_time(mirrord, client, tmp_path):
    """It has no entry in a tree: its time is the snapshot's. It is older than all in it, and stays so over a restart and a tag."""
    src, rsync = tmp_path / "src", client("rsync")
    (src / "folder").mkdir(parents=True)
    (src / "folder/file").write_text("x")
    os.utime(src, ns=(10 ** 18, 10 ** 18 + 123456789))
    d = Rsyncd(rsync, tmp_path, {"m": (src, [])})
    port, text = config(d.url + "/m/")

    def time_of_copy(*options):
        to = tmp_path / f"dst{len(list(tmp_path.glob('dst*')))}"
        subprocess.run([rsync, "-rltH", *options, f"rsync://127.0.0.1:{port}/x/", f"{to}/"], check=True, capture_output=True)
        return to.stat().st_mtime_ns
    try:
        m = mirrord(text)
        assert run(m)["outcome"] == "published"
        assert time_of_copy() == 10 ** 18 + 123456789
        assert time_of_copy("--protocol=30") == 10 ** 18  # which has whole seconds
        m.ctl("snapshot", "tag", "x", "v1", "first")
        m.stop()
        m.start()
        assert time_of_copy() == 10 ** 18 + 123456789
        (src / "folder/file").write_text("xy")
        os.utime(src, ns=(10 ** 18, 11 * 10 ** 17))
        assert run(m)["outcome"] == "published" and time_of_copy() == 11 * 10 ** 17
        m.ctl("snapshot", "rollback", "x", "first")
        assert time_of_copy() == 10 ** 18 + 123456789
    finally:
        d.close()


def test_a_changed_large_file_moves_by_its_blocks(mirrord, client, tmp_path):
    (tmp_path / "src").mkdir()
    big = bytearray(os.urandom(3_000_000))
    (tmp_path / "src/big").write_bytes(big)
    d = Rsyncd(client("rsync"), tmp_path, {"m": (tmp_path / "src", [])})
    try:
        _, text = config(d.url + "/m/")
        m = mirrord(text)
        run(m)
        d.sent_bytes(1)  # it is in its log, before what comes next
        big[1_000_000:1_000_100] = bytes(100)
        (tmp_path / "src/big").write_bytes(big)
        os.utime(tmp_path / "src/big", (1_600_000_000, 1_600_000_000))
        run(m)
        assert m.get("/x/big").body == bytes(big)
        assert d.sent_bytes(2) < 100_000
    finally:
        d.close()


def test_an_upstream_that_is_gone_or_refuses(mirrord, client, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a").write_text("a")
    (tmp_path / "secrets").write_text("me:sesame\n")
    (tmp_path / "secrets").chmod(0o600)
    (tmp_path / "mine").write_text("me:sesame")
    d = Rsyncd(client("rsync"), tmp_path, {"m": (tmp_path / "src", ["auth users = me",
                                                                   f"secrets file = {tmp_path}/secrets"])})
    try:
        _, text = config(d.url + "/m/", f'authorization = "file:{tmp_path}/mine"')
        m = mirrord(text)
        assert run(m)["outcome"] == "published"
    finally:
        d.close()
    failed = m.ctl("--json", "sync", "run", "x", "--wait", check=False)
    assert failed.returncode != 0 and "sesame" not in failed.stdout + failed.stderr + m.log()
    assert m.get("/x/a").body == b"a"
