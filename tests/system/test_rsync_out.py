"""Stock rsync clients served from published trees."""
import os
import pathlib
import re
import socket
import struct
import subprocess
import threading
import time

import pytest

from harness.mirrord import until
from harness.rsync_out import Out, contents
from harness.rsyncd import Pull, Rsyncd, facts

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = {"a/empty": b"", "a/text": b"hello\n", "a/big": os.urandom(300_000), "foo/x": b"1", "foo.bar/y": b"2",
         "foo-bar": b"3", "deep/" + "d/" * 30 + "z": b"4", "odd name/caf\u00e9": b"5", "zeros": bytes(100_000)}


@pytest.fixture
def out(mirrord, client):
    return Out(mirrord, client("rsync"))


@pytest.fixture
def filled(out):
    for path, data in FILES.items():
        out.put(path, data)
    return out


@pytest.mark.parametrize("options", [("-rltH", "--delete"), ("-aH", "--delete", "--numeric-ids"), ("-a", "--protocol=30"),
                                     ("-rt", "--checksum-choice=md5"), ("-a", "--delete-excluded", "--delay-updates"),
                                     ("-rtW", "--inplace"), ("-rt", "--compress-level=3"),
                                     ("-rt", "--compress-level=0"), ("-rt", "--zc=zlib", "--zl=0"), ("-a", "--no-inc-recursive", "-S")])
def test_a_stock_client_gets_the_tree(filled, tmp_path, options):
    dst = tmp_path / "dst"
    (dst / "stale").mkdir(parents=True)
    (dst / "stale/file").write_text("goes with --delete")
    filled.run(*options, filled.url + "/models/me/tree/", f"{dst}/")
    have = contents(dst)
    assert (have.pop("stale/file", None) is None) == any(o.startswith("--delete") for o in options)
    assert have == FILES
    again = filled.run(*options, "-i", filled.url + "/models/me/tree/", f"{dst}/").stdout
    assert not re.search(r"^>f", again, re.M), again


def test_changes_are_fetched_whole_and_right(filled, tmp_path):
    filled.run("-rt", filled.url + "/models/me/tree/", f"{tmp_path}/dst/")
    big = bytearray(FILES["a/big"])
    big[1000:1010] = b"0123456789"
    time.sleep(1.1)  # rsync looks at size and second
    filled.put("a/big", bytes(big))
    said = filled.run("-rt", "--no-whole-file", "--stats", filled.url + "/models/me/tree/", f"{tmp_path}/dst/").stdout
    assert contents(tmp_path / "dst")["a/big"] == bytes(big)
    assert re.search(r"Matched data: 0 bytes", said), said


def test_lists_parts_and_patterns(filled, tmp_path):
    def names(path, *options):
        lines = filled.run("--list-only", *options, filled.url + path).stdout.splitlines()
        return {line.split(maxsplit=4)[4] for line in lines}
    assert names("/models/me/tree/") == {".", "a", "foo", "foo.bar", "foo-bar", "deep", "odd name", "zeros"}
    assert names("/models/me/tree/a", "-r") == {"a", "a/empty", "a/text", "a/big"}
    assert names("/models/me/tree/a/") == {".", "empty", "text", "big"}
    assert names("/models/me/tree/foo*") == {"foo", "foo.bar", "foo-bar"}
    assert names("/models/me/tree/a/text") == {"text"}
    assert names("/models/") == {".", "me"}
    modules = filled.run(filled.url + "/").stdout
    assert "models" in modules and "secret" not in modules


@pytest.mark.parametrize("options, paths, want", [
    (("-rt",), ("a", "foo"), {"a/empty", "a/text", "a/big", "foo/x"}),
    (("-rt", "--protocol=30"), ("foo/", "a/", "zeros"), {"empty", "text", "big", "x", "zeros"}),
    (("-rtR",), ("deep/d/d/d", "a/text"), {"deep/" + "d/" * 30 + "z", "a/text"}),
    (("-rtRz",), ("deep/d/./" + "d/" * 29 + "z", "foo"), {"d/" * 29 + "z", "foo/x"}),
    (("-rt", "--delete"), ("a", "a", "foo*"), {"a/empty", "a/text", "a/big", "foo/x", "foo.bar/y", "foo-bar"})])
def test_several_paths_and_relative_ones(filled, tmp_path, options, paths, want):
    dst = tmp_path / "dst"
    first, *more = [f"{filled.url}/models/me/tree/{p}" for p in paths]
    if "R" in options[0]:
        first, more = first.replace("me/tree/", "me/tree/./", 1) if "/./" not in first else first, [
            m.replace("me/tree/", "me/tree/./", 1) for m in more]
    filled.run(*options, first, *more, f"{dst}/")
    assert {k: v for k, v in contents(dst).items()}.keys() == want
    assert "a/text" not in want or contents(dst)["a/text"] == FILES["a/text"]


def test_one_of_several_is_missing(filled, tmp_path):
    tree = filled.url + "/models/me/tree"
    run = filled.run("-rt", f"{tree}/a", f"{tree}/none", f"{tree}/zeros", f"{tmp_path}/dst/", check=False)
    assert run.returncode == 23 and "none" in run.stderr
    assert set(contents(tmp_path / "dst")) == {"a/empty", "a/text", "a/big", "zeros"}


def test_folders_alone_do_not_empty_what_the_client_has_in_them(filled, tmp_path):
    dst = tmp_path / "dst"
    filled.run("-rt", filled.url + "/models/me/tree/", f"{dst}/")
    (dst / "a/own").write_text("the client's")
    (dst / "own").write_text("goes")
    filled.run("-dt", "--delete", filled.url + "/models/me/tree/", f"{dst}/")
    assert (dst / "a/own").exists() and (dst / "a/big").exists() and not (dst / "own").exists()


def test_rules_and_dry_runs(filled, tmp_path):
    dst = tmp_path / "dst"
    said = filled.run("-rtni", filled.url + "/models/me/tree/", f"{dst}/").stdout
    assert "a/big" in said and not dst.exists()
    filled.run("-rt", "--include=/a/", "--include=/a/t*", "--exclude=*", filled.url + "/models/me/tree/", f"{dst}/")
    assert contents(dst) == {"a/text": b"hello\n"}


def on_the_page():
    """The options of the table "What is refused" of docs/protocols/rsync.md."""
    page = (ROOT / "docs/protocols/rsync.md").read_text().split("### What is refused", 1)[1].split("\nA repo", 1)[0]
    return [o for row in re.findall(r"^\| (`.*?) \|", page, re.M) for o in re.findall("`(.*?)`", row)]


REFUSED = re.compile(r"the (option|requested|filter rule) .* is not supported|a list on the server\) is not supported")


def test_what_the_page_says_is_refused_is_refused_in_words(filled, tmp_path):
    for option in on_the_page():
        run = filled.run("-r", *(["-z"] if "zc" in option else []), option, filled.url + "/models/me/tree/", f"{tmp_path}/dst/",
                         check=False)
        assert run.returncode == 4 and REFUSED.search(run.stderr), (option, run)
        assert not contents(tmp_path / "dst")


def test_what_is_refused_stands_on_the_page(filled, tmp_path):
    """All options of the installed client that need no value, and those with one that the server is sent."""
    listed = re.findall(r"^(-.*?)  ", filled.run("--help").stdout, re.M)
    options = {o.strip() for line in listed for o in line.split(",") if "=" not in line and "(" not in line}
    options -= {"--version", "-V", "--no-OPTION", "-M", "--ipv6", "-6"}
    assert len(options) > 100
    page, refused = on_the_page(), set()
    for option in sorted(options | {"--info=all1", "--chmod=a+r", "--block-size=900", "--max-size=1g", "--skip-compress=gz",
                                    "--compress-level=3", "--timeout=100", "--modify-window=1", "--usermap=0:1", "--cc=md5"}):
        run = filled.run("-rn", option, filled.url + "/models/me/tree/", f"{tmp_path}/dst/", check=False)
        if run.returncode == 4 and REFUSED.search(run.stderr):
            refused.add(option)
        else:  # 1: the client itself will not have it
            assert run.returncode in (0, 1), (option, run)
    assert sorted(refused - set(page)) == []
    assert {"-c", "-k", "-L"} <= refused


@pytest.mark.parametrize("options", [("-rts",), ("-rts", "--protocol=30"), ("-rtsz", "--delete"), ("-aHsR",), ("-rt",)])
def test_arguments_that_are_secluded(filled, tmp_path, monkeypatch, options):
    if "-rt" in options:
        monkeypatch.setenv("RSYNC_PROTECT_ARGS", "1")
    tree = filled.url + ("/models/./" if "-aHsR" in options else "/models/me/tree/")
    filled.run(*options, tree, f"{tmp_path}/dst/")
    assert contents(tmp_path / ("dst/me/tree" if "-aHsR" in options else "dst")) == FILES
    filled.run("-rts", "--exclude=big", f"{filled.url}/models/me/tree/odd name", f"{filled.url}/models/me/tree/a*", f"{tmp_path}/part/")
    assert set(contents(tmp_path / "part")) == {"odd name/caf\u00e9", "a/empty", "a/text"}
    (tmp_path / "names").write_text("a/text\nodd name\n")
    filled.run("-rts", f"--files-from={tmp_path}/names", filled.url + "/models/me/tree/", f"{tmp_path}/named/")
    assert set(contents(tmp_path / "named")) == {"a/text", "odd name/caf\u00e9"}


@pytest.mark.parametrize("size", [1, 5120])
def test_early_input_is_not_looked_at(filled, tmp_path, size):
    """As a stock daemon without `early exec` has it: it is read, and what it says changes nothing."""
    (tmp_path / "early").write_bytes(b"#list\n" * (size // 6) + b"x" * (size % 6))
    filled.run("-rt", f"--early-input={tmp_path}/early", filled.url + "/models/me/tree/", f"{tmp_path}/dst/")
    assert contents(tmp_path / "dst") == FILES


def test_a_wildcard_before_the_last_part_is_refused_in_words(filled, tmp_path):
    for path in ("[a]/text", "*/text", "a?/text", "[a]/"):
        run = filled.run("-rt", f"{filled.url}/models/me/tree/{path}", f"{tmp_path}/dst/", check=False)
        assert run.returncode != 0 and "wildcards are supported only in the last part of a path" in run.stderr, (path, run)
    filled.run("-rt", "--exclude=[a]/text", filled.url + "/models/me/tree/a", f"{tmp_path}/dst/")
    assert set(contents(tmp_path / "dst")) == {"a/empty", "a/big"}


def test_secluded_arguments_are_bounded(filled):
    with socket.create_connection(("127.0.0.1", filled.port)) as s:
        s.sendall(b"@RSYNCD: 31.0 md5\nmodels\n--server\0--sender\0-sre.LsfxCIvu\0\0rsync\0" + b"-r\0" * 400)
        s.settimeout(240)
        while s.recv(65536):
            pass
    until(lambda: "too many arguments" in filled.m.log())
    for words in (b"", b"rsync\0"):  # nothing at all, and no path
        with socket.create_connection(("127.0.0.1", filled.port)) as s:
            s.sendall(b"@RSYNCD: 31.0 md5\nmodels\n--server\0--sender\0-sre.LsfxCIvu\0\0" + words + b"\0\x04md5 ")
            s.settimeout(240)
            heard = b""
            while part := s.recv(65536):
                heard += part
            assert b"the client requested no path" in heard


@pytest.mark.parametrize("options", [("-r",), ("-aH", "--delete", "--exclude=x"), ("-az",), ("-rs",), ("-a", "--protocol=30"), ("-rcn",),
                                     ("-r", "--append"), ("-aAX", "--remove-source-files")])
def test_a_push_is_refused_as_by_the_installed_daemon(filled, client, tmp_path, options):
    (tmp_path / "theirs").mkdir()
    src = tmp_path / "src"
    src.mkdir()
    for i in range(200):
        (src / f"file {i}").write_text("x")
    daemon = Rsyncd(client("rsync"), tmp_path, {"models": (tmp_path / "theirs", [])})
    try:
        theirs, ours = (filled.run(*options, f"{src}/", f"{url}/models/", check=False) for url in (daemon.url, filled.url))
        assert "ERROR: module is read only" in theirs.stderr  # it may close before the client has read its exit code
        assert theirs.returncode == 1 or "reset by peer" in theirs.stderr, theirs
        assert "ERROR: module is read only" in ours.stderr and ours.returncode == 1, ours
        assert len(list(src.iterdir())) == 200
    finally:
        daemon.close()


def test_what_is_not_there(filled, tmp_path):
    for path, words in (("/none/", "Unknown module"), ("/secret/", "Unknown module"),
                        ("/models/me/tree/nothing", "No such file"), ("/models/../../etc/", "")):
        run = filled.run("-r", filled.url + path, f"{tmp_path}/dst/", check=False)
        assert run.returncode != 0 and words in run.stderr, (path, run.stderr)
    assert not (tmp_path / "dst/passwd").exists()


def test_a_module_without_a_tree(out, tmp_path):
    run = out.run("-r", out.url + "/models/", f"{tmp_path}/dst/", check=False)
    assert "nothing has been published in models yet" in run.stderr + run.stdout


def test_a_module_that_never_has_a_tree(mirrord, client, origin, tmp_path):
    """What is passed through file by file has no list: to try again later would be of no use."""
    out = Out(mirrord, client("rsync"), before=f'repo "far" {{ protocol = "generic" origin = "{origin.url}/" }}\n'
              f'repo "whole" {{ protocol = "generic" origin = "{origin.url}/" sync {{ }} }}')
    run = out.run("-r", out.url + "/far/", f"{tmp_path}/dst/", check=False)
    assert "far is not mirrored whole (it has no sync section)" in run.stderr and "use HTTP" in run.stderr, run
    run = out.run("-r", out.url + "/whole/", f"{tmp_path}/dst/", check=False)
    assert "nothing has been published in whole yet; try again later" in run.stderr, run


def test_our_own_receiver_takes_from_it(filled, tmp_path):
    for _ in range(2):  # the second with a basis for each file: sums are read past
        pull = Pull(tmp_path / "state", filled.url + "/models/me/tree/")
        assert pull.code == 0 and pull.counts["corrupt"] == "0", pull.err
    filled.run("-rt", filled.url + "/models/me/tree/", f"{tmp_path}/dst/")
    assert pull.facts()[0] == facts(tmp_path / "dst")[0]


def test_a_session_sees_one_snapshot(filled, tmp_path):
    """A publish in the middle of a slow transfer changes nothing for that client."""
    filled.put("last", os.urandom(2_000_000))
    slow = subprocess.Popen([filled.rsync, "-rt", "--bwlimit=400", filled.url + "/models/me/tree/", f"{tmp_path}/dst/"])
    until(lambda: list(tmp_path.glob("dst/.last.*")))
    for name in ("a/text", "zeros", "last"):
        filled.put(name, b"new " * 1000)
    assert slow.wait(240) == 0
    have = contents(tmp_path / "dst")
    assert {k: v for k, v in have.items() if k != "last"} == FILES and len(have["last"]) == 2_000_000


def test_too_many_at_once(mirrord, client, tmp_path):
    out = Out(mirrord, client("rsync"), "connections = 2")
    out.put("a", b"a")
    held = [socket.create_connection(("127.0.0.1", out.port)) for _ in range(2)]
    for s in held:
        s.recv(100)
    run = out.run("-r", out.url + "/models/me/tree/", f"{tmp_path}/dst/", check=False)
    assert "max connections (2) reached" in run.stderr + run.stdout
    for s in held:
        s.close()
    until(lambda: out.run("-r", out.url + "/models/me/tree/", f"{tmp_path}/dst/", check=False).returncode == 0)
    assert contents(tmp_path / "dst") == {"a": b"a"}


def begin(out):
    s = socket.create_connection(("127.0.0.1", out.port), 120)
    s.sendall(b"@RSYNCD: 31.0 md5\nmodels\n")
    got = b""
    while b"OK\n" not in got:
        piece = s.recv(1000)
        assert piece, got
        got += piece
    return s


def said_until_the_end(s, words=b""):
    """What we are told, while we say that, until we are sent away."""
    got = b""
    try:
        s.sendall(words)
        while piece := s.recv(65536):
            got += piece
    except ConnectionError:
        pass
    return got


def ended(s, words=b""):
    said_until_the_end(s, words)
    return True


def test_clients_as_they_should_not_be(filled, tmp_path):
    raw = socket.create_connection(("127.0.0.1", filled.port), 120)
    assert ended(raw, b"x" * 100_000 + b"\n")
    old = socket.create_connection(("127.0.0.1", filled.port), 120)
    assert b"protocol 30" in said_until_the_end(old, b"@RSYNCD: 29.0\n")
    many = begin(filled)
    threading.Thread(target=lambda: many.sendall(b"--x\0" * 100_000), daemon=True).start()
    assert ended(many)
    args = b"--server\0--sender\0-re.LfxCIvu\0.\0models/me/tree/\0\0"
    for after in (struct.pack("<I", (7 + 55) << 24), struct.pack("<Ii", 7 << 24 | 4, -5),
                  struct.pack("<Ii", 7 << 24 | 4, 0) + struct.pack("<I", 7 << 24 | 6) + b"\xfe\xff\xff\xff\xff\xff",
                  struct.pack("<Ii", 7 << 24 | 4, 0) + struct.pack("<I", 7 << 24 | 19) + b"\x03\x00\x80"
                  + struct.pack("<iiii", 1, 1 << 30, 2, 0)):
        s = begin(filled)
        assert ended(s, args + b"\x03md5" + after)
    left = begin(filled)
    left.sendall(args + b"\x03md5")
    left.close()
    filled.run("-r", filled.url + "/models/me/tree/", f"{tmp_path}/dst/")
    assert contents(tmp_path / "dst") == FILES


def test_stopping_does_not_wait_for_clients(mirrord, client):
    out = Out(mirrord, client("rsync"), 'stall = "1h"', 'drain = "1h"')
    out.put("a", b"a")
    s = begin(out)
    out.m.stop()
    assert ended(s)
