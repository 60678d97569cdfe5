"""trainagent as a whole program against a mirror that lies, breaks and lags (harness/fake_mirror.py)."""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness.fake_mirror import CHUNK, Mirror  # noqa: E402
from harness.mirrord import until  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
AGENT = str(Path(os.environ.get("MIRROR_BUILD", ROOT / "build")) / "trainagent")
if not os.access(AGENT, os.X_OK):
    pytest.skip(f"{AGENT} is not built: run make", allow_module_level=True)

BIG = random.Random(1).randbytes(5 * CHUNK + 12345)
OTHER = random.Random(2).randbytes(5 * CHUNK + 12345)
LIST_BYTES = 1000  # more than a list of their parts has


def sha(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def mirror():
    m = Mirror()
    m.files["/d/big.bin"] = BIG
    m.files["/d/sub/a b.txt"] = b"hello"
    yield m
    m.close()


class Agent:
    def __init__(self, tmp, mirror):
        self.tmp = tmp
        self.shelf = tmp / "shelf"
        self.children = []
        self.env = {"PATH": os.environ["PATH"], "HOME": str(tmp), "TRAINAGENT_MIRROR": mirror.url,
                    "TRAINAGENT_SHELF": str(self.shelf), "TRAINAGENT_STATE": str(tmp / "state")}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                self.env[name] = os.environ[name]

    def start(self, *args, **more):
        child = subprocess.Popen([AGENT, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env={**self.env, **more}, cwd=self.tmp)
        self.children.append(child)
        return child

    def __call__(self, *args, code=0, **more):
        p = self.start(*args, **more)
        out, err = p.communicate(timeout=120)
        assert p.returncode == code, (p.returncode, out, err)
        self.err = err
        return out

    def blob(self, data):
        p = self.shelf / "blobs" / "sha256" / sha(data)[:2] / sha(data)
        return p.read_bytes() if p.exists() else None

    def blobs(self):
        return [p for p in self.shelf.glob("blobs/sha256/*/*")]

    def nothing_wrong(self):
        for p in self.blobs():
            assert hashlib.sha256(p.read_bytes()).hexdigest() == p.name


@pytest.fixture
def agent(tmp_path, mirror):
    a = Agent(tmp_path, mirror)
    yield a
    for child in a.children:
        child.kill()
    a.nothing_wrong()


def gets(mirror, path):
    return [entry for entry in mirror.log if entry[0] == "GET" and entry[1] == path]


# --- what works ------------------------------------------------------------------------------------------------------------


def test_parts_in_parallel_then_from_the_shelf(agent, mirror):
    path = agent("pull", "d/big.bin").strip()
    assert Path(path).read_bytes() == BIG
    assert agent.err == ""
    assert len(gets(mirror, "/d/big.bin")) == 6
    assert mirror.sent < len(BIG) * 1.01
    mirror.log.clear()
    agent("pull", "d/big.bin")
    assert gets(mirror, "/d/big.bin") == []
    mirror.log.clear()
    agent("pull", "d/big.bin#sha256=" + sha(BIG))
    assert mirror.log == []  # what is known by digest needs no network


def test_folder_with_odd_names(agent, mirror, tmp_path):
    out = json.loads(agent("pull", "d/", "--to", tmp_path / "out", "--json"))
    assert (tmp_path / "out/big.bin").read_bytes() == BIG
    assert (tmp_path / "out/sub/a b.txt").read_bytes() == b"hello"
    assert {f["name"] for f in out["files"]} == {"big.bin", "sub/a b.txt"}
    agent("pull", "d", "--to", tmp_path / "out2")  # without the slash: found to be a folder
    assert (tmp_path / "out2/big.bin").read_bytes() == BIG
    mirror.fail = {"/d/": [503, 502]}
    mirror.redirect = {"/d": "d/"}  # as mirrord says it
    agent("pull", "d", "--to", tmp_path / "out3")
    assert (tmp_path / "out3/big.bin").read_bytes() == BIG


def test_plain_http_server_without_any_extra(agent, mirror):
    mirror.chunks = mirror.digests = False
    assert Path(agent("pull", "d/big.bin").strip()).read_bytes() == BIG
    mirror.sent = 0
    agent("pull", "d/big.bin")  # the same ETag: recorded, not fetched again
    assert mirror.sent == 0
    mirror.head = mirror.etags = False
    assert Path(agent("pull", "d/big.bin").strip()).read_bytes() == BIG


def test_empty_file(agent, mirror, tmp_path):
    mirror.files["/d/empty"] = b""
    agent("pull", "d/empty", "--to", tmp_path)
    assert (tmp_path / "empty").read_bytes() == b""


def test_two_agents_share_one_download(agent, mirror):
    mirror.rate = 10 << 20
    a, b = agent.start("pull", "d/big.bin"), agent.start("pull", "d/big.bin")
    assert a.wait(120) == 0 and b.wait(120) == 0
    assert a.stdout.read() == b.stdout.read()
    assert mirror.sent < len(BIG) * 1.05


def test_a_folder_of_more_files_than_a_process_may_open(agent, mirror, tmp_path):
    files = {f"{i}.txt": b"%d" % (i % 300) for i in range(400)}  # some of the same content
    for name, data in files.items():
        mirror.files[f"/many/{name}"] = data
    run = subprocess.run(["sh", "-c", 'ulimit -n 128; exec "$@"', "sh", AGENT, "pull", "many/", "--to", tmp_path / "out"],
                         env=agent.env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == files
    assert len(agent.blobs()) == 300 and list(agent.shelf.glob("partial/*")) == []


# --- a mirror that lies ------------------------------------------------------------------------------------------------------


def test_one_bad_chunk_is_fetched_again(agent, mirror):
    mirror.bad_chunk = {2: 1}
    agent("pull", "d/big.bin")
    assert agent.blob(BIG) == BIG
    assert mirror.sent < len(BIG) + 1.5 * CHUNK


def test_a_chunk_that_stays_bad_is_a_clear_error(agent, mirror):
    mirror.bad_chunk = {2: -1}
    agent("pull", "d/big.bin", "--connections", 1, code=65)  # one by one: the parts before it have come
    assert "part 3 of 6" in agent.err and "damaged" in agent.err
    assert agent.blobs() == []
    kept = persisted_bytes(next(agent.shelf.glob("partial/*.state")))
    assert kept >= 2 * CHUNK
    settle(mirror)
    mirror.bad_chunk = {}
    mirror.sent = 0
    agent("pull", "d/big.bin")
    assert 0 <= mirror.sent - (len(BIG) - kept) < LIST_BYTES, "the good parts were kept"


def test_damaged_stream(agent, mirror):
    mirror.chunks = False
    mirror.damage = True
    agent("pull", "d/big.bin", code=65)
    assert "sha256" in agent.err
    assert agent.blobs() == [] and list(agent.shelf.glob("partial/*")) == []


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("digests", [True, False])
def test_wrong_digest_asked_for(agent, mirror, digests, head):
    """Whether the mirror says so itself or only the bytes do: data that is not what was asked for, and final."""
    mirror.digests = mirror.chunks = digests
    mirror.head = head
    agent("pull", f"d/big.bin#sha256={sha(OTHER)}", code=65)
    agent("pull", "d/big.bin", "--sha256", sha(OTHER), code=65)
    assert sha(OTHER)[:16] in agent.err and "requested" in agent.err
    assert agent.blobs() == []


def test_chunk_list_that_lies(agent, mirror):
    mirror.lie_chunk_list = True
    mirror.files["/d/two.bin"] = BIG[:CHUNK + 5]
    agent("pull", "d/two.bin", code=65)
    assert agent.blobs() == []


def test_short_bodies_are_taken_up(agent, mirror):
    mirror.short, mirror.short_times = 1 << 20, 4
    agent("pull", "d/big.bin")
    assert agent.blob(BIG) == BIG
    mirror.files["/d/other.bin"] = OTHER
    mirror.chunks = False
    mirror.short, mirror.short_times = 3 * CHUNK + 5, 1
    mirror.sent = 0
    agent("pull", "d/other.bin")
    assert agent.blob(OTHER) == OTHER
    assert mirror.sent < len(OTHER) + CHUNK  # went on, did not begin anew


def test_all_connections_break_at_once(agent, mirror):
    """One outage is one try, however many connections it hits; what a part has is not fetched again."""
    mirror.short, mirror.short_times = CHUNK // 2, 6
    agent("pull", "d/big.bin", "--tries", "2")
    assert agent.blob(BIG) == BIG
    assert mirror.sent < len(BIG) + CHUNK // 2
    mirror.files["/d/other.bin"] = OTHER
    mirror.refuse = 10  # connections that end before an answer: each a try they would be too many, and a wave of them may last longer than a pause
    agent("pull", "d/other.bin", "--tries", "7")
    assert agent.blob(OTHER) == OTHER


def test_connections_that_never_last_a_part(agent, mirror):
    mirror.short, mirror.short_times = 3 << 20, 1000
    agent("pull", "d/big.bin", "--tries", "2")
    assert agent.blob(BIG) == BIG
    assert mirror.sent < len(BIG) + CHUNK
    mirror.files["/d/other.bin"] = OTHER
    mirror.chunks = False
    mirror.sent = 0
    agent("pull", "d/other.bin", "--tries", "2")
    assert agent.blob(OTHER) == OTHER
    assert mirror.sent < len(OTHER) + CHUNK


def test_one_connection_trickles(agent, mirror):
    mirror.trickle = {3: 2}  # two answers would take half an hour
    agent("pull", "d/big.bin", "--idle-timeout", "30")  # a sixth of it without end is a crawl: on a busy machine all may take a while
    assert agent.blob(BIG) == BIG
    assert mirror.sent < len(BIG) + CHUNK


def test_all_connections_trickle(agent, mirror):
    mirror.trickle = {i: 100 for i in range(6)}
    agent("pull", "d/big.bin", "--idle-timeout", "5", "--tries", "1", code=75)
    assert "too slow" in agent.err


def test_body_without_an_end(agent, mirror):
    mirror.lengths = False
    agent("pull", "d/big.bin", "--sha256", sha(BIG))
    assert agent.blob(BIG) == BIG
    mirror.files["/d/x"] = b"some text"
    mirror.chunks = mirror.digests = mirror.head = False
    agent("pull", "d/x", code=69)
    assert "no Content-Length" in agent.err


@pytest.mark.parametrize("digests", [True, False])
def test_body_longer_than_it_was_said_to_be(agent, mirror, digests):
    mirror.chunks, mirror.digests, mirror.endless = False, digests, 40
    mirror.files["/d/x"] = b"some text"
    agent("pull", "d/x", code=75)
    assert "changed on the mirror" in agent.err
    agent("pull", "d/big.bin", code=75)
    mirror.endless = 0
    agent("pull", "d/big.bin")
    assert agent.blob(BIG) == BIG


@pytest.mark.parametrize("chunks", [True, False])
def test_change_in_the_middle(agent, mirror, chunks):
    mirror.chunks = chunks
    mirror.changed_data = OTHER
    mirror.change_after = 3 if chunks else 1
    if not chunks:
        mirror.short, mirror.short_times = 2 * CHUNK, 1
    agent("pull", "d/big.bin")
    assert agent.blob(OTHER) == OTHER and agent.blob(BIG) is None


def test_ranges_answered_by_the_whole(agent, mirror):
    mirror.ranges = False
    agent("pull", "d/big.bin")
    assert agent.blob(BIG) == BIG


def test_trouble_that_passes(agent, mirror):
    mirror.fail = {"/d/big.bin": [503, 500, 429, 502]}
    agent("pull", "d/big.bin")
    assert agent.blob(BIG) == BIG


def test_trouble_that_does_not_pass_is_named(agent, mirror):
    mirror.fail = {"/-/chunks/" + sha(BIG): [503] * 20}
    agent("pull", "d/big.bin", "--tries", "2", code=75)
    assert "temporarily unavailable (503)" in agent.err


def test_errors_say_what_and_why(agent, mirror, tmp_path):
    agent("pull", "d/nope", code=66)
    assert "d/nope" in agent.err and "404" in agent.err
    mirror.redirect = {"/d/big.bin": "http://elsewhere.example/x"}
    agent("pull", "d/big.bin", code=77)
    assert "another host" in agent.err
    agent("pull", code=64)
    agent("nonsense", code=64)
    agent("pull", "x/y", "--tries", 2, code=69, TRAINAGENT_MIRROR="http://127.0.0.1:1")
    assert "cannot connect" in agent.err
    assert agent.blobs() == []


def test_the_reason_of_the_mirror_is_shown(agent, mirror, tmp_path):
    """Of a file (a HEAD, which has no body), a folder, a Hub's repository, a transfer that fails after its HEAD, an upload."""
    src = tmp_path / "src"
    src.mkdir()
    (src / "a").write_text("a")
    mirror.reason = b"the origin does not resolve\nand a second line"
    reason = ": the origin does not resolve\n"
    agent("pull", "d/nope", code=66)
    assert agent.err.endswith("d/nope: not found on the mirror (404)" + reason)
    for name, path in (("d/", "/d/"), ("d/big.bin", "/d/big.bin"), ("hf/me/x@main", "/hf/api/models/me/x/revision/main")):
        mirror.fail = {path: [502] * 20}
        agent("pull", name, "--tries", 1, code=75)
        assert agent.err.endswith("the mirror is temporarily unavailable (502)" + reason), name
    mirror.chunks = False
    mirror.fail_get = {"/d/big.bin": [403]}
    agent("pull", "d/big.bin", code=77)
    assert agent.err.endswith("the token does not permit it (403)" + reason)
    for path, status, code in (("", 405, 76), ("/u1/a", 403, 77), ("/u1/commit", 507, 73)):
        mirror.fail = {"/models/me/gpt/-/uploads" + path: [status] * 20}
        agent("publish", src, "models/me/gpt", "--tries", 1, code=code)
        assert f"{status})" + reason in agent.err or f"responded with status {status}" + reason in agent.err


@pytest.mark.parametrize("said,shown", [
    (b"x" * 5000, "x" * 160 + "..."), ("é".encode() * 200, "é" * 80 + "..."), (b"red \x1b[31m\xff\xc2\x9b0m", "red .[31m..0m"),
    (b"\n\n  after blank lines \r\nx", "after blank lines"), (b"<html><body>of a proxy", None), (b"", None), (b"not found", None), (b"404: Not Found\n", None),
    (b"not found: no such repo", "no such repo"), (b"not foundation", "not foundation"), (b"404 pages", "404 pages")],
    ids=["long", "characters", "controls", "blank", "html", "none", "words of the status", "status line", "reason", "other word", "number"])
def test_a_reason_is_one_short_line_that_prints(agent, mirror, said, shown):
    mirror.reason = said
    agent("pull", "d/nope", code=66)
    assert agent.err.endswith("not found on the mirror (404)" + (f": {shown}" if shown else "") + "\n")


def test_names_of_the_local_cache(agent, mirror, tmp_path):
    """Options, then variables; each has a former name."""
    places = [(tmp_path / name) for name in ("option", "former-option", "variable", "former-variable")]
    env = {"TRAINAGENT_CACHE": str(places[2]), "TRAINAGENT_SHELF": str(places[3])}
    for args, more, at in ((("--cache", places[0]), env, 0), (("--shelf", places[1]), env, 1), ((), env, 2),
                           ((), {"TRAINAGENT_SHELF": env["TRAINAGENT_SHELF"]}, 3)):
        said = agent("status", *args, **more).splitlines()
        assert said[0].startswith("cache    0 files (0 B)") and said[1] == f"at       {places[at]}", said
        assert "shelf" not in "".join(said) and (places[at] / "blobs").is_dir()
        assert json.loads(agent("status", "--json", *args, **more))["shelf"]["blobs"] == 0


def test_a_reason_is_not_waited_for_in_place_of_the_answer(agent, mirror):
    """The file is there by the time of the GET that asks why it was not: its bytes are no reason."""
    mirror.fail = {"/d/big.bin": [403]}
    agent("pull", "d/big.bin", code=77)
    assert agent.err.endswith("does not permit it (403)\n") and mirror.sent < CHUNK


def test_an_answer_that_cannot_be_written_is_an_error(agent, mirror):
    for args in (["pull", "d/big.bin"], ["status", "--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([AGENT, *args], env=agent.env, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
                                  timeout=60)
        assert done.returncode == 73 and "standard output" in done.stderr
    said = subprocess.run(["sh", "-c", f"{AGENT} status --json | true"], env=agent.env, capture_output=True, text=True,
                          check=False, timeout=60)
    assert said.stderr == ""


def test_a_long_name_does_not_push_the_reason_out(agent, mirror):
    agent("pull", "d/" + "x" * 230, code=66)
    assert "not found on the mirror (404)" in agent.err


def test_hostile_listing(agent, mirror, tmp_path):
    mirror.files["/d/../../evil"] = b"x"
    mirror.files["/e/"] = b""
    mirror.listing = lambda h, path: mirror.reply(h, 200, {}, json.dumps(
        {"root": "0" * 64, "entries": [{"path": "../evil", "size": 1, "sha256": sha(b"x")}]}).encode())
    agent("pull", "e/", "--to", tmp_path / "out", code=65)
    assert not (tmp_path / "evil").exists()


# --- tokens -------------------------------------------------------------------------------------------------------------------


def test_token(agent, mirror, tmp_path):
    (tmp_path / "token").write_text("mrd_secret\n")
    mirror.token = "Bearer mrd_secret"
    agent("pull", "d/big.bin", code=77)
    agent("pull", "d/big.bin", TRAINAGENT_TOKEN_FILE=str(tmp_path / "token"))
    agent("pull", "d/big.bin", code=77, TRAINAGENT_TOKEN_FILE=str(tmp_path / "token"),
          TRAINAGENT_MIRROR="http://mirror.example:8080")
    assert "plain HTTP" in agent.err and "mrd_secret" not in agent.err


def settle(mirror):
    """What was under way when a client died still counts as sent for a moment."""
    mirror.go.set()
    until(lambda: mirror.busy == 0)
    mirror.hold_at = None


# --- crashes ------------------------------------------------------------------------------------------------------------------


def persisted_bytes(state):
    """What a .state file vouches for: the layout is parts.c's."""
    text = state.read_bytes()
    size = int.from_bytes(text[8:16], "little")
    count = int.from_bytes(text[24:32], "little")
    bits = int.from_bytes(text[-32 - (count + 7) // 8:-32], "little")
    return sum(min(CHUNK, size - i * CHUNK) for i in range(count) if bits >> i & 1)


@pytest.mark.parametrize("chunks", [True, False])
def test_sigkill_loses_little(agent, mirror, chunks):
    mirror.chunks = chunks
    mirror.hold_at = 4 * CHUNK
    p = agent.start("pull", "d/big.bin", "--connections", 1)

    def kept_bytes():
        return sum(map(persisted_bytes, agent.shelf.glob("partial/*.state")))
    until(lambda: kept_bytes() >= CHUNK)
    p.kill()
    p.wait()
    kept = kept_bytes()
    settle(mirror)
    mirror.sent = 0
    agent("pull", "d/big.bin")
    assert agent.blob(BIG) == BIG
    assert mirror.sent <= len(BIG) - 0.9 * kept
    assert list(agent.shelf.glob("partial/*")) == []


def test_damaged_partial_file_is_noticed(agent, mirror):
    mirror.bad_chunk = {5: -1}
    agent("pull", "d/big.bin", "--connections", 1, code=65)  # one by one: nothing else is under way when the last one fails
    assert persisted_bytes(next(agent.shelf.glob("partial/*.state"))) == 5 * CHUNK
    part = next(agent.shelf.glob("partial/*.part"))
    with part.open("r+b") as f:
        f.seek(CHUNK)
        f.write(b"rotten")
    settle(mirror)
    mirror.bad_chunk = {}
    mirror.sent = 0
    agent("pull", "d/big.bin")
    assert agent.blob(BIG) == BIG
    damaged, missing = CHUNK, len(BIG) % CHUNK
    assert 0 <= mirror.sent - (damaged + missing) < LIST_BYTES


@pytest.mark.parametrize("seed", range(6))
def test_sigkill_at_random(agent, mirror, seed):
    rng = random.Random(seed)
    mirror.rate = 20 << 20
    mirror.chunks = seed % 2 == 0
    for _ in range(4):
        p = agent.start("pull", "d/big.bin")
        time.sleep(rng.random() * 0.8)
        p.send_signal(rng.choice([signal.SIGKILL, signal.SIGTERM]))
        p.wait(120)
        agent.nothing_wrong()
    mirror.rate = 0
    agent("pull", "d/big.bin")
    assert agent.blob(BIG) == BIG


def test_shelf_notices_what_was_written_into_a_blob(agent, mirror, tmp_path):
    agent("pull", "d/big.bin", "--to", tmp_path / "out")
    blob = agent.blobs()[0]
    blob.chmod(0o644)
    with blob.open("r+b") as f:
        f.write(b"rotten")
    agent("pull", "d/big.bin")
    assert agent.blob(BIG) == BIG


# --- archives -----------------------------------------------------------------------------------------------------------------


def tar_of(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for info, data in members:
            info.size = len(data or b"")
            t.addfile(info, io.BytesIO(data) if data is not None else None)
    return out.getvalue()


def member(name, data=b"x", kind=tarfile.REGTYPE, link="", mode=0o644):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info, (data if kind == tarfile.REGTYPE else None)


def test_unpack(agent, mirror, tmp_path):
    mirror.files["/d/a.tgz"] = tar_of(member("./", kind=tarfile.DIRTYPE), member("./x/y.txt", b"text"),
                                      member("x/run", b"#!", mode=0o6755),
                                      member("x/l", kind=tarfile.SYMTYPE, link="y.txt"),
                                      member("h", kind=tarfile.LNKTYPE, link="x/y.txt"))
    tree = Path(agent("pull", "d/a.tgz", "--unpack").strip())
    assert (tree / "x/y.txt").read_bytes() == b"text" and (tree / "h").read_bytes() == b"text"
    assert (tree / "x/run").stat().st_mode & 0o7777 == 0o555  # setuid, and who may write: no
    assert json.loads(agent("pull", "d/a.tgz", "--unpack", "--to", tmp_path / "out", "--json"))["path"] == str(tmp_path / "out")
    assert (tmp_path / "out/x/l").read_bytes() == b"text"


@pytest.mark.parametrize("bad", [
    tar_of(member("../evil")), tar_of(member("/tmp/evil")), tar_of(member("a/../../evil")),
    tar_of(member("l", kind=tarfile.SYMTYPE, link="/etc"), member("l/evil")),
    tar_of(member("l", kind=tarfile.SYMTYPE, link="../..")), tar_of(member("h", kind=tarfile.LNKTYPE, link="../x")),
    tar_of(member("p/q/up", kind=tarfile.SYMTYPE, link=".."), member("r", kind=tarfile.SYMTYPE, link="p/q/up/../..")),
    tar_of(member("p/q/up", kind=tarfile.SYMTYPE, link="../.."), member("u", kind=tarfile.LNKTYPE, link="p/q/up")),
    tar_of(member("dev", kind=tarfile.CHRTYPE)), tar_of(member("ok", b"x" * 5000))[:-20], b"no archive", b"",
], ids=["parent", "absolute", "deep parent", "through a link", "link out", "hard link out", "link behind a link",
        "hard link to a link", "device", "cut", "none", "empty"])
def test_hostile_archives(agent, mirror, tmp_path, bad):
    mirror.files["/d/bad.tgz"] = bad
    if bad == b"":
        pytest.skip("libarchive takes an empty file for an empty archive")
    agent("pull", "d/bad.tgz", "--unpack", "--to", tmp_path / "out", code=65)
    assert list(agent.shelf.glob("trees/*")) == []
    assert not (tmp_path / "evil").exists()


def test_unpack_to_follows_no_link_that_is_there(agent, mirror, tmp_path):
    mirror.files["/d/a.tgz"] = tar_of(member("x/y.txt", b"text"))
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/x").symlink_to(tmp_path / "elsewhere")
    agent("pull", "d/a.tgz", "--unpack", "--to", tmp_path / "out", code=73)
    assert "out/x: exists and is not a folder" in agent.err
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_bomb(agent, mirror):
    mirror.files["/d/bomb.tgz"] = tar_of(member("zeros", bytes(80 << 20)))
    agent("pull", "d/bomb.tgz", "--unpack", code=65)
    assert "unpacks to more than" in agent.err
    assert list(agent.shelf.glob("trees/*")) == []


# --- jobs ---------------------------------------------------------------------------------------------------------------------


def job(tmp_path, text):
    path = tmp_path / "my.conf"
    path.write_text(text)
    return path


def test_job_from_pull_to_publish(agent, mirror, tmp_path):
    mirror.files["/d/a.tgz"] = tar_of(member("x/y.txt", b"text"))
    path = job(tmp_path, """
        artifact "corpus" { from = "d/a.tgz" unpack = true }
        artifact "model" { from = "d/" include = {"*.bin"} }
        artifact "file" { from = "d/big.bin" sha256 = "%s" }
        run { command = {"sh", "-c", "cp {corpus}/x/y.txt {out}/; test -f {model}/big.bin; test ! -e {model}/sub;
              cmp {file} {model}/big.bin; mkdir -p {out}/checkpoint-5 {out}/checkpoint-12 {out}/checkpoint-99.partial;
              echo old >{out}/checkpoint-5/w; echo new >{out}/checkpoint-12/w; echo half >{out}/checkpoint-99.partial/w;
              echo $RANK $WORLD_SIZE >{out}/ranks"} ranks = 1 }
        publish { from = "{out}" to = "models/me/gpt" }
    """ % sha(BIG))
    assert agent("run", path) == "" and agent.err == ""
    folder, files, _ = mirror.commits[0]
    assert folder == "/models/me/gpt"
    assert files == {"w": b"new\n", "y.txt": b"text", "ranks": b"0 1\n"}
    mirror.sent = 0
    agent("run", path)
    assert mirror.sent < 2000  # all on the shelf
    assert json.loads(agent("status", "--json"))["jobs"][0]["result"] == "ok"


@pytest.mark.parametrize("spoil", ["echo spoilt >{i}", "rm {i}", "chmod u+w {i}; echo spoilt >>{i}"])
def test_inputs_are_what_was_pulled_in_each_run(agent, mirror, tmp_path, spoil):
    """What a run did to its inputs is not what the next one begins with."""
    mirror.files["/d/x"] = b"some text"
    for inputs, i in (("d/x", "{in}"), ("d/", "{in}/x")):
        path = job(tmp_path, 'artifact "in" { from = "%s" }\nrun { command = {"sh", "-c", "cat %s >>{out}/seen && %s"} ranks = 1 }'
                   % (inputs, i, spoil.format(i=i)))
        for _ in range(3):
            agent("run", path)
        seen = next(tmp_path.glob("state/jobs/*/out/seen"))
        assert seen.read_bytes() == b"some text" * 3
        seen.unlink()
        agent("pull", "d/x")  # a hard link's fate is the blob's: a look at it, and it is fetched again


def test_inputs_that_nobody_changed_stay(agent, mirror, tmp_path):
    path = job(tmp_path, 'artifact "in" { from = "d/" }\nrun { command = {"true"} ranks = 1 }')
    for copy in ([], ["--copy"]):
        agent("run", path, *copy)
        before = {p: p.lstat().st_ino for p in tmp_path.glob("state/jobs/*/in/**/*")}
        agent("run", path, *copy)
        assert {p: p.lstat().st_ino for p in tmp_path.glob("state/jobs/*/in/**/*")} == before
        shutil.rmtree(tmp_path / "state")


def test_restarts_after_75_only(agent, mirror, tmp_path):
    script = "echo x >>{out}/n; test $(wc -l <{out}/n) -ge 3 && exit 0; exit %d"
    path = job(tmp_path, 'run { command = {"sh", "-c", "%s"} ranks = 1 restarts = 5 backoff = "10ms" }' % (script % 75))
    agent("run", path)
    assert json.loads(agent("status", "--json"))["jobs"][0]["restarts"] == 2
    path.write_text('run { command = {"sh", "-c", "exit 3"} ranks = 1 restarts = 5 backoff = "10ms" }')
    agent("run", path, code=3)
    path.write_text('run { command = {"sh", "-c", "kill -9 $$"} ranks = 2 restarts = 1 backoff = "10ms" }')
    agent("run", path, code=70)  # no restarts are left


def test_one_run_of_a_job_at_a_time(agent, mirror, tmp_path):
    path = job(tmp_path, 'run { command = {"sh", "-c", "touch {out}/up; sleep 600"} ranks = 1 }')
    p = agent.start("run", path)
    until(lambda: list(tmp_path.glob("state/jobs/*/out/up")))
    agent("run", path, code=75)
    assert "is still running" in agent.err
    p.terminate()
    assert p.wait(120) == 143


def test_jitter_is_the_hosts_own(agent, mirror, tmp_path):
    path = job(tmp_path, 'run { command = {"true"} ranks = 1 }')
    said = []
    for _ in range(2):
        p = agent.start("run", path, "--jitter", "4w", "-v")  # says how long, then waits
        line = next(line for line in p.stderr if "run.jitter" in line)
        said.append(int(re.search(r"wait_ms=(\d+)", line)[1]))
        agent("run", path, code=75)  # it has its turn already
        p.kill()
        p.communicate()
    assert said[0] == said[1] < 4 * 7 * 86400 * 1000
    agent("run", path, "--jitter", "0", "-v")
    assert "jitter" not in agent.err
    agent("run", path, "--jitter", "soon", code=64)
    assert '--jitter does not accept "soon"' in agent.err


def test_what_a_killed_agent_left_running_keeps_the_job(agent, mirror, tmp_path):
    """The rank dies with the agent, what the rank started does not: nobody may start beside it."""
    path = job(tmp_path, """run { command = {"sh", "-c", "sh -c 'touch up; while test ! -e go; do sleep 0.05; done; touch down'; true"}
                                  ranks = 1 }""")
    p = agent.start("run", path)
    until(lambda: (tmp_path / "up").exists())
    p.kill()
    p.wait()
    agent("run", path, code=75)
    assert "is still running" in agent.err
    (tmp_path / "go").touch()
    until(lambda: (tmp_path / "down").exists())
    (tmp_path / "up").unlink()
    until(lambda: agent.start("run", path).wait() == 0)
    assert (tmp_path / "up").exists()


def test_first_failing_rank_ends_the_others(agent, mirror, tmp_path):
    agent("launch", "--ranks", 3, "--", "sh", "-c", "test $RANK = 1 && exit 7; sleep 600", code=7)
    agent("launch", "--", "/does/not/exist", code=66)
    assert "/does/not/exist" in agent.err


def test_ranks_are_seen_to_end_where_children_are_ignored(agent, mirror):
    """SIGCHLD ignored by what started us stays ignored over exec; the kernel then tells nobody of children."""
    p = subprocess.Popen([AGENT, "launch", "--", "sh", "-c", "exit 3"], env=agent.env,
                         preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    agent.children.append(p)
    assert p.wait(120) == 3


def test_signals_reach_the_ranks(agent, mirror, tmp_path):
    p = agent.start("launch", "--ranks", 2, "--", "sh", "-c",
                    "trap 'echo usr >>log.$RANK' USR1; trap 'exit 75' TERM; touch up.$RANK; while :; do sleep 0.05; done")
    until(lambda: len(list(tmp_path.glob("up.*"))) == 2)
    p.send_signal(signal.SIGUSR1)
    until(lambda: len(list(tmp_path.glob("log.*"))) == 2)
    p.send_signal(signal.SIGTERM)
    assert p.wait(120) == 75


@pytest.mark.parametrize("text, says", [
    ("artefact \"x\" { from = 1 }", "artefact"),
    ("artifact \"x\" { }", "from"),
    ("artifact \"x/y\" { from = \"d/x\" }", "name"),
    ("artifact \"x\" { from = \"d/x\" sha256 = \"12\" }", "64 hex"),
    ("run { ranks = 1 }", "command"),
    ("run { command = {\"echo\", \"{nope}\"} ranks = 1 }", "nope"),
    ("publish { from = \"x\" }", "publish"),
    ("run {", ""),
])
def test_wrong_job_files(agent, mirror, tmp_path, text, says):
    agent("run", job(tmp_path, text), code=78)
    assert says in agent.err


# --- publishing ----------------------------------------------------------------------------------------------------------------


def test_publish_is_all_or_nothing(agent, mirror, tmp_path):
    src = tmp_path / "src"
    (src / "sub").mkdir(parents=True)
    (src / "config.json").write_text("{}")
    (src / "sub/model.safetensors").write_bytes(BIG)
    (src / ".hidden").write_text("no")
    (src / "x.partial").write_text("no")
    agent("publish", src, "models/me/gpt", "--if-match", "0" * 64, code=75)
    assert mirror.commits == []
    mirror.fail = {"/models/me/gpt/-/uploads/u1/commit": [409]}
    agent("publish", src, "models/me/gpt", code=75)
    assert "rejected the commit" in agent.err and mirror.commits == []
    out = json.loads(agent("publish", src, "models/me/gpt", "--json"))
    assert out["files"] == 2 and out["version"] == "v1"
    assert mirror.commits[0][1] == {"config.json": b"{}", "sub/model.safetensors": BIG}
    agent("publish", src, "models/me", code=64)
    agent("publish", tmp_path / "nope", "models/me/gpt", code=66)
    agent("pull", "models/me/gpt/", "--to", tmp_path / "back")
    assert (tmp_path / "back/sub/model.safetensors").read_bytes() == BIG


def test_only_a_folder_is_a_checkpoint(agent, mirror, tmp_path):
    out = tmp_path / "out"
    (out / "checkpoint-1").mkdir(parents=True)
    (out / "checkpoint-1/w").write_text("weights")
    (out / "checkpoint-2").write_text("a log, by its name")
    agent("publish", out, "models/me/gpt")
    assert mirror.commits[0][1] == {"w": b"weights", "checkpoint-2": b"a log, by its name"}


def test_publish_can_be_stopped_while_it_reads(agent, mirror, tmp_path):
    (tmp_path / "src").mkdir()
    with open(tmp_path / "src/huge", "wb") as f:
        f.truncate(1 << 40)  # an hour's hashing
    p = agent.start("publish", "src", "models/me/gpt")
    until(lambda: "huge" in os.popen(f"ls -l /proc/{p.pid}/fd").read())
    p.terminate()
    assert p.wait(120) != 0 and mirror.commits == []


def test_publish_rides_over_trouble(agent, mirror, tmp_path):
    src = tmp_path / "src"
    src.mkdir()
    (src / "a").write_text("a")
    mirror.fail = {"/models/me/gpt/-/uploads": [503], "/models/me/gpt/-/uploads/u1/a": [502],
                   "/models/me/gpt/-/uploads/u1/commit": [503]}
    agent("publish", src, "models/me/gpt")
    assert mirror.commits[0][1] == {"a": b"a"}


def test_publish_over_a_tree_that_moves_on(agent, mirror, tmp_path):
    """What the tree has is not sent; when it is another by the time of the commit, all is, and it is these files again."""
    src = tmp_path / "src"
    src.mkdir()
    files = {"a": b"as it was", "b": b"old"}
    tree = "/models/me/gpt/"
    for name, data in files.items():
        (src / name).write_bytes(data)
        mirror.files[tree + name] = data
    (src / "b").write_bytes(b"new")
    files["b"] = b"new"

    def sent():
        return [(e[0], e[1].removeprefix(tree + "-/uploads/u1/"), e[3]) for e in mirror.log if "/uploads/" in e[1]]

    def another():
        mirror.files[tree + "a"] = b"another's"
        mirror.files[tree + "c"] = b"another's"

    mirror.meanwhile = another
    agent("publish", src, "models/me/gpt", "--connections", 1)
    first, refused, *again, done = sent()
    assert [first, refused] == [("PUT", "b", 201), ("POST", "commit", 412)]
    assert sorted(again) == [("PUT", "a", 201), ("PUT", "b", 201)] and done == ("POST", "commit?replace=1", 201)
    assert {p.removeprefix(tree): data for p, data in mirror.files.items() if p.startswith(tree)} == files
    assert len(mirror.commits) == 1 and "If-Match" not in mirror.commits[0][2]
    mirror.log.clear()
    root, _ = mirror.tree(tree)
    (src / "b").write_bytes(b"newer")
    mirror.meanwhile = another
    agent("publish", src, "models/me/gpt", "--if-match", root, code=75)  # who names a root means that one
    assert sent() == [("PUT", "b", 201), ("POST", "commit", 412)]
    assert mirror.files[tree + "a"] == b"another's" and len(mirror.commits) == 1


def test_publish_goes_on_where_the_mirror_is(agent, mirror, tmp_path):
    """Asked where to go on, the mirror may be busy with what the broken connection brought: no reason to begin anew."""
    src = tmp_path / "src"
    src.mkdir()
    (src / "a").write_bytes(BIG)
    path = "/models/me/gpt/-/uploads/u1/a"
    mirror.kept = {path: BIG[:3 * CHUNK]}
    mirror.fail = {path: [502, 409, 503]}  # the PUT, then twice the HEAD
    agent("publish", src, "models/me/gpt")
    assert mirror.commits[0][1] == {"a": BIG}
    assert [entry[0] for entry in mirror.log if entry[1] == path] == ["PUT", "HEAD", "HEAD", "HEAD", "PUT"]
    assert mirror.ranges_put == [f"bytes {3 * CHUNK}-{len(BIG) - 1}/{len(BIG)}"]
    del mirror.files["/models/me/gpt/a"]
    mirror.kept = {path: BIG}  # all came, but for the answer that it is whole: the last byte once more
    mirror.fail = {path: [502]}
    agent("publish", src, "models/me/gpt")
    assert mirror.ranges_put[1:] == [f"bytes {len(BIG) - 1}-{len(BIG) - 1}/{len(BIG)}"]


# --- the shelf ------------------------------------------------------------------------------------------------------------------


def test_an_unfinished_download_is_one_and_goes_whole(agent, mirror):
    mirror.hold_at = 4 * CHUNK
    p = agent.start("pull", "d/big.bin", "--connections", "1")
    until(lambda: list(agent.shelf.glob("partial/*.state")))
    p.kill()
    p.wait()
    settle(mirror)
    (state,) = agent.shelf.glob("partial/*.state")
    state.with_name(state.name + ".AbCdEf~").write_bytes(b"as a crash leaves it")
    shelf = json.loads(agent("status", "--json"))["shelf"]
    assert shelf["partials"] == 1 and shelf["partial_bytes"] > 0
    removed = json.loads(agent("gc", "--keep", "0", "--json"))["removed"]
    assert removed["partials"] == 1 and removed["partial_bytes"] == shelf["partial_bytes"]
    assert list(agent.shelf.glob("partial/*")) == []


def test_gc_by_bytes_oldest_first(agent, mirror):
    mirror.files["/d/other.bin"] = OTHER
    agent("pull", "d/big.bin")
    time.sleep(1.1)  # uses are kept by the second
    agent("pull", "d/other.bin")
    agent("gc", "--keep", "60m")
    assert agent.blob(BIG) is None and agent.blob(OTHER) == OTHER
    agent("gc", "--keep", "0")
    assert agent.blobs() == []


@pytest.fixture
def mount(tmp_path):
    """mount(where, *arguments): a file system for this test."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    mounted = []

    def mount(where, *args):
        where.mkdir(exist_ok=True)
        done = subprocess.run(["mount", *map(str, args), where], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"cannot mount: {done.stderr.strip()}")
        if where not in mounted:
            mounted.append(where)
    yield mount
    for where in mounted:
        subprocess.run(["umount", "-l", where], check=True)


def test_a_full_disk_stays_as_full_as_it_was(agent, mirror, tmp_path, mount):
    image = tmp_path / "image"
    with open(image, "wb") as f:
        f.truncate(100 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], capture_output=True)
    if made.returncode != 0:
        pytest.skip("no mkfs.ext4")
    mount(tmp_path / "disk", "-o", "loop", image)
    agent.shelf = tmp_path / "disk/shelf"
    agent.env["TRAINAGENT_SHELF"] = str(agent.shelf)
    (tmp_path / "disk/ballast").write_bytes(bytes(60 << 20))

    def free():
        os.sync()
        at = os.statvfs(tmp_path / "disk")
        return at.f_bavail * at.f_bsize
    agent("status")
    before = free()
    agent("pull", "d/big.bin", code=73)
    assert "space" in agent.err and free() > before - (1 << 20)
    mirror.head = mirror.lengths = False  # nobody knows how large it is
    mirror.chunks = False
    agent("pull", "d/big.bin", "--sha256", sha(BIG), code=73)
    assert "space" in agent.err
    (tmp_path / "disk/ballast").unlink()
    mirror.head = mirror.lengths = mirror.chunks = True
    agent("pull", "d/big.bin")
    assert agent.blob(BIG) == BIG


def test_a_shelf_that_is_read_only(agent, mirror, tmp_path, mount):
    """A node's local cache, filled by another user or mounted so: what is on it may be used."""
    mirror.files["/d/a.tgz"] = tar_of(member("x/y.txt", b"text"))
    agent("pull", "d/big.bin")
    agent("pull", "d/a.tgz", "--unpack")
    mount(tmp_path / "ro", "--bind", agent.shelf)
    mount(tmp_path / "ro", "-o", "remount,ro,bind")
    more = {"TRAINAGENT_SHELF": str(tmp_path / "ro")}
    agent("pull", f"d/big.bin#sha256={sha(BIG)}", "--to", tmp_path / "out", **more)
    assert (tmp_path / "out/big.bin").read_bytes() == BIG
    path = job(tmp_path, """artifact "a" { from = "d/a.tgz" unpack = true }
                            run { command = {"sh", "-c", "cat {a}/x/y.txt >{out}/got"} ranks = 1 }""")
    agent("run", path, **more)
    assert next(tmp_path.glob("state/jobs/*/out/got")).read_bytes() == b"text"
    mirror.files["/d/other"] = b"not there"
    agent("pull", "d/other", code=77, **more)
    assert "Read-only" in agent.err


def test_waiting_for_another_job_is_said_after_a_while(agent, mirror):
    agent("status")
    with open(agent.shelf / "locks" / sha(BIG), "w") as lock:  # a process that has it, and does nothing
        fcntl.flock(lock, fcntl.LOCK_EX)
        p = agent.start("pull", "d/big.bin", "--idle-timeout", "1")
        assert any("pull.waits" in line for line in p.stderr)
    assert p.wait(120) == 0 and agent.blob(BIG) == BIG


@contextlib.contextmanager
def swept(agent):
    """gc takes whatever it may, all the while."""
    stop = threading.Event()

    def sweep():
        while not stop.is_set():
            agent.start("gc", "--keep", "0").communicate()
    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        yield
    finally:
        stop.set()
        sweeper.join()


def test_gc_beside_jobs(agent, mirror, tmp_path):
    """Whatever gc takes and when: a job has its files, or says that it should be run again; never half of them."""
    files = {f"/many/{i}": b"%d" % i * 100 for i in range(60)}
    mirror.files.update(files)
    mirror.files["/d/a.tgz"] = tar_of(*(member(f"{i}", b"%d" % i) for i in range(60)))
    path = job(tmp_path, """artifact "a" { from = "d/a.tgz" unpack = true }
                            artifact "m" { from = "many/" }
                            run { command = {"sh", "-c", "test $(ls {a} | wc -l) = 60 && test $(ls {m} | wc -l) = 60"} ranks = 1 }""")
    with swept(agent):
        for _ in range(15):
            p = agent.start("run", path)
            _, err = p.communicate(timeout=120)
            assert p.returncode in (0, 75), err
    agent("run", path)


def test_quiet_when_nobody_watches(agent, mirror, tmp_path):
    assert agent("pull", "d/big.bin", "--to", tmp_path / "o") == "" and agent.err == ""
    assert "usage" in agent("--help")
    shutil.rmtree(agent.shelf)
