"""trainagent against mirrord itself: pulls cold and warm, jobs, kills on either side, publishing that goes on."""
import hashlib
import io
import json
import os
import re
import shlex
import subprocess
import tarfile
import threading

import pytest

from harness.mirrord import BUILD, ROOT, SANITIZERS, SLOW, until
from harness.origin import span
from harness.way import Way

CHUNK = 8 << 20
SIZE = 5 * CHUNK + 12345
CONFIG = '''
repo "data" {{ protocol = "generic" origin = "{}/" rule '.' {{ class = immutable }} }}
repo "gone" {{ protocol = "generic" origin = "http://127.0.0.1:1/" }}
repo "models" {{ protocol = "hosted" }}
'''


class Agent:
    """One node: its shelf, its state, its token."""

    def __init__(self, folder, m):
        self.folder, self.m, self.err = folder, m, ""
        folder.mkdir(exist_ok=True)
        token = folder / "token"
        token.write_text(m.token(folder.name, "publish:models/*", "read:models/*") + "\n")
        token.chmod(0o600)
        self.env = dict(os.environ, **SANITIZERS, TRAINAGENT_MIRROR=m.url(""), TRAINAGENT_TOKEN_FILE=str(token),
                        TRAINAGENT_SHELF=str(folder / "shelf"), TRAINAGENT_STATE=str(folder / "state"),
                        PATH=f"{BUILD}:{os.environ['PATH']}")

    def start(self, *args, **more):
        return subprocess.Popen([BUILD / "trainagent", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=dict(self.env, **more), cwd=self.folder)

    def __call__(self, *args, code=0, **more):
        child = self.start(*args, **more)
        out, self.err = child.communicate(timeout=120 * SLOW)
        assert child.returncode == code, (child.returncode, out, self.err)
        return out

    def job(self, text):
        path = self.folder / "job.conf"
        path.write_text(f'mirror = "{self.m.url("")}"\n{text}')
        return path


@pytest.fixture
def m(mirrord, origin):
    origin.put("/big.bin", size=SIZE)
    return mirrord(CONFIG.format(origin.url))


@pytest.fixture
def agent(tmp_path, m):
    return Agent(tmp_path / "node", m)


BIG = span(1, 0, SIZE)
SHA = hashlib.sha256(BIG).hexdigest()


# --- pulling ----------------------------------------------------------------------------------------------------------------


def test_cold_then_warm_by_chunk_list(agent, m, origin, tmp_path):
    agent("pull", f"data/big.bin#sha256={SHA}", "--to", tmp_path / "a")
    assert (tmp_path / "a/big.bin").read_bytes() == BIG
    m.settle()
    assert origin.stats("/big.bin").bytes == SIZE
    other = Agent(tmp_path / "other", m)
    got = json.loads(other("pull", "data/big.bin", "--to", tmp_path / "b", "--json"))
    assert (tmp_path / "b/big.bin").read_bytes() == BIG
    assert got["fetched_bytes"] == SIZE and origin.stats("/big.bin").bytes == SIZE
    m.answered("/data/big.bin", 6, status=206)  # the second node has asked for each chunk by itself


def test_what_differs_from_its_digest_is_refused(agent):
    for _ in ("cold", "warm: the mirror states another digest"):
        agent("pull", f"data/big.bin#sha256={'1' * 64}", code=65)
        assert "data/big.bin" in agent.err
    agent("pull", f"data/big.bin#sha256={'0' * 64}", code=64)  # never taken for "any"


def test_folder_of_a_hosted_tree(agent, m, tmp_path):
    files = {"config.json": b"{}", "sub folder/a%b.bin": BIG[:CHUNK + 1], "empty": b""}
    source = tmp_path / "source"
    for name, data in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(data)
    version = json.loads(agent("publish", source, "models/me/tree", "--json"))["version"]
    (source / "config.json").write_text('{"second": 1}')
    agent("publish", source, "models/me/tree")
    for where, first in (("models/me/tree/", b'{"second": 1}'), (f"models/me/tree@{version}/", b"{}")):
        to = tmp_path / where.replace("/", "-")
        agent("pull", where, "--to", to)
        files["config.json"] = first
        assert {str(p.relative_to(to)): p.read_bytes() for p in to.rglob("*") if p.is_file()} == files


def test_what_the_timer_runs(agent, m, tmp_path):
    """The unit's own line, on the folder that docs/operations.md has in it; one line that fails holds up no other."""
    line = re.search(r"^ExecStart=(.*)", (ROOT / "systemd/trainagent.service").read_text(), re.M)[1]
    for old, new in (("/etc/trainagent/pull.d", f"{tmp_path}/pull.d"), ("/usr/bin/trainagent", f"{BUILD}/trainagent"), ("$$", "$")):
        line = line.replace(old, new)
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text("{}")
    agent("publish", source, "models/base/gpt2")
    (tmp_path / "pull.d").mkdir()
    (tmp_path / "pull.d/base").write_text("# of the node\n\nmodels/base/gpt2/\ndata/big.bin")
    run = lambda: subprocess.run(shlex.split(line), env=agent.env, capture_output=True, text=True, check=False,  # noqa: E731
                                 timeout=120 * SLOW)
    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads(agent("status", "--json"))["shelf"]["blobs"] == 2
    agent("gc", "--keep", "0")
    (tmp_path / "pull.d/a").write_text("data/nope\n")
    done = run()
    assert done.returncode == 66 and "data/nope" in done.stderr
    assert json.loads(agent("status", "--json"))["shelf"]["blobs"] == 2


def test_a_folder_without_a_place_is_on_the_shelf(agent, m, tmp_path):
    source = tmp_path / "source"
    (source / "b c").mkdir(parents=True)
    (source / "b c/d").write_text("in a folder")
    agent("publish", source, "models/me/tree")
    where, name = agent("pull", "models/me/tree").rstrip("\n").split("\t")
    assert name == "b c/d" and open(where).read() == "in a folder"
    assert json.loads(agent("pull", "models/me/tree", "--json"))["path"] is None


def test_resume_after_a_kill(agent, m, origin):
    thing = origin.put("/big.bin", size=SIZE, hold_at=3 * CHUNK)
    child = agent.start("pull", "data/big.bin")
    until(lambda: list(agent.folder.glob("shelf/partial/*.state")))
    child.kill()
    child.communicate()
    thing.go.set()
    path = agent("pull", "data/big.bin").strip()
    assert hashlib.sha256(open(path, "rb").read()).hexdigest() == SHA
    m.settle()
    assert origin.stats("/big.bin").bytes == SIZE


def test_mirrord_restarts_in_mid_pull(agent, m, origin):
    thing = origin.put("/big.bin", size=SIZE, hold_at=2 * CHUNK)
    child = agent.start("pull", "data/big.bin", "--tries", 12)  # the mirror is away for as long as it takes to start
    until(lambda: thing.bytes > CHUNK)
    m.kill()
    thing.go.set()
    m.start()
    out, err = child.communicate(timeout=120 * SLOW)
    assert child.returncode == 0, err
    assert hashlib.sha256(open(out.strip(), "rb").read()).hexdigest() == SHA


def test_two_jobs_share_one_download(agent, m, origin):
    origin.put("/big.bin", size=SIZE, rate=40 << 20)
    pulls = [agent.start("pull", "data/big.bin", "--json") for _ in range(2)]
    said = [json.loads(p.communicate(timeout=120 * SLOW)[0]) for p in pulls]
    assert [p.returncode for p in pulls] == [0, 0]
    assert sum(s["fetched_bytes"] for s in said) < SIZE + CHUNK


def test_silence_ends_a_transfer(agent, m, origin):
    origin.put("/slow.bin", size=SIZE, stall_at=10)
    agent("pull", "data/slow.bin", "--idle-timeout", 1, "--tries", 1, code=75)
    m.kill()  # its fill waits for the origin longer than a test should


def test_tls_needs_the_authority(agent, m, cert, tmp_path):
    tls = m.url("", "h2")
    agent("pull", "data/big.bin", "--mirror", tls, "--tries", 1, code=69)
    assert "certificate" in agent.err.lower()
    assert "name its cert.pem with --ca-file, TRAINAGENT_CA_FILE or ca_file in trainagent.conf" in agent.err
    agent("pull", "data/big.bin", "--mirror", tls, "--ca-file", cert[0], "--to", tmp_path / "o")
    assert (tmp_path / "o/big.bin").read_bytes() == BIG


def test_the_mirror_says_why(agent, tmp_path):
    """In the mirror's own words, whichever they are: of a repo that is none, of an upload to a mirrored one, of an origin that is away."""
    agent("pull", "nosuch/x", code=66)
    assert re.search(r"nosuch/x: not found on the mirror \(404\): \w", agent.err), agent.err
    (tmp_path / "a").write_text("a")
    agent("publish", tmp_path, "data/me/x", code=76)
    assert re.search(r"the mirror responded with status 405: \w", agent.err), agent.err
    agent("pull", "gone/x.bin", "--tries", 1, code=75)
    assert re.search(r"the mirror is temporarily unavailable \(50\d\): .*connect", agent.err), agent.err


def test_token_file(agent, m, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("a")
    agent("publish", source, "models/me/x", code=77, TRAINAGENT_TOKEN_FILE="")
    (agent.folder / "wrong").write_text("mrd_0000_nonsense")
    (agent.folder / "wrong").chmod(0o600)
    agent("publish", source, "models/me/x", "--token-file", agent.folder / "wrong", code=77)
    agent("publish", source, "models/me/x")


# --- jobs ---------------------------------------------------------------------------------------------------------------------


def tar_of(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_job_unpacks_runs_and_publishes(agent, m, origin, tmp_path):
    archive = tar_of({"text/one": b"1", "text/two": b"2"})
    origin.put("/corpus.tar.xz", body=archive)
    path = agent.job(f'''
artifact "corpus" {{ from = "data/corpus.tar.xz" sha256 = "{hashlib.sha256(archive).hexdigest()}" unpack = true }}
run {{ command = {{"sh", "-c", "cat {{corpus}}/text/* >{{out}}/sum"}} ranks = 1 }}
publish {{ from = "{{out}}" to = "models/me/sums" }}
''')
    agent("run", path)
    assert agent.err == ""
    assert m.get("/models/me/sums/sum").body == b"12"
    agent("run", path)  # all is there: nothing is fetched, and the tree is the same
    assert origin.stats("/corpus.tar.xz").bytes == len(archive)
    assert json.loads(agent("status", "--json"))["jobs"][0]["result"] == "ok"


def test_what_one_job_changes_in_an_archive_no_other_gets(agent, m, origin):
    """As root, whom no mode binds: the folder in the local cache is that of all jobs of the node."""
    archive = tar_of({"text/one": b"1", "text/two": b"2"})
    origin.put("/corpus.tar", body=archive)
    artifact = (f'artifact "corpus" {{ from = "data/corpus.tar" sha256 = "{hashlib.sha256(archive).hexdigest()}"'
                ' unpack = true }\n')

    def job(name, command):
        path = agent.folder / name
        path.write_text(f'mirror = "{m.url("")}"\n' + artifact
                        + f'run {{ command = {{"sh", "-c", {json.dumps(command)}}} ranks = 1 }}\n')
        return path

    look = job("look.conf", "cat {corpus}/text/* >{out}/seen")

    def seen():
        agent("run", look)
        return next(agent.folder.glob("state/jobs/look-*/out/seen")).read_bytes()

    assert seen() == b"12"
    bad = job("bad.conf", "chmod u+w {corpus}/text; echo x >{corpus}/text/index; touch {out}/done;"
                          " while [ ! -e {out}/go ]; do sleep 0.05; done")
    child = agent.start("run", bad)
    until(lambda: list(agent.folder.glob("state/jobs/bad-*/out/done")))
    agent("run", look, code=75)  # it cannot be taken from under the other's feet
    assert "changed by a job that still uses it" in agent.err
    (next(agent.folder.glob("state/jobs/bad-*/out")) / "go").touch()
    child.communicate(timeout=120 * SLOW)
    assert seen() == b"12"
    assert "local_cache.changed" in agent.err
    assert seen() == b"12"
    assert agent.err == ""


def test_options_of_other_verbs_and_words_that_are_none(agent):
    path = agent.job('run { command = {"true"} ranks = 1 }')
    for line, says in ((("run", path, "--ranks", 2), "--ranks does not belong to run, which has --copy --peers --jitter"),
                       (("--if-match", "x", "pull", "data/big.bin"), "--if-match does not belong to pull"),
                       (("status", "--keep", "1g"), "--keep does not belong to status, which has no options of its own"),
                       (("run", path, "--jiter", "1s"), "--jiter is not an option; did you mean --jitter?"),
                       (("run", path, "-z"), "-z is not an option"),
                       (("gc", "--keep"), "--keep needs a value"),
                       (("gc", "--keep", "much"), "--keep does not accept \"much\""),
                       (("publsh", "a", "b"), "publsh: no such verb; did you mean publish?"),
                       (("frobnicate",), "frobnicate: no such verb; try trainagent --help")):
        agent(*line, code=64)
        assert says in agent.err, line
    agent("run", path, "--jitter", "1ms", "-q", "--tries", 2)
    agent("run", agent.job("# nothing yet\n"), code=78)
    assert "job.conf:1: the file has no artifact, run or publish" in agent.err


def test_a_job_keeps_no_query(agent):
    path = agent.job('artifact "x" { from = "data/none.bin?token=S3CRET&a=b" }\nrun { command = {"true"} }')
    agent("run", path, code=66)
    assert "S3CRET" not in agent.err and "data/none.bin?..." in agent.err
    record = next(agent.folder.glob("state/jobs/*/result.json"))
    assert "S3CRET" not in record.read_text() and "none.bin" in record.read_text()
    assert record.stat().st_mode & 0o777 == 0o600
    assert "S3CRET" not in agent("status")


# --- publishing -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def way(agent, m):
    """Between the node and its mirror."""
    with Way(m.port) as w:
        agent.env["TRAINAGENT_MIRROR"] = f"http://127.0.0.1:{w.port}"
        yield w


def test_publish_goes_on_after_a_kill(agent, m, way, tmp_path):
    """What it had on its way comes no further, and the mirror does not hear of its end."""
    source = tmp_path / "source"
    source.mkdir()
    files = {f"{i}.bin": span(10 + i, 0, 3 * CHUNK) for i in range(4)}
    for name, data in files.items():
        (source / name).write_bytes(data)
    began = m.metric("mirrord_http_received_bytes_total")
    passed, over = [], threading.Event()

    def sending(n):
        passed.append(n)
        if sum(passed) > 2 * CHUNK:
            over.wait()
            return "cut"
        return None

    way.sending = sending
    child = agent.start("publish", source, "models/me/big", "--connections", 2)
    until(lambda: m.metric("mirrord_http_received_bytes_total") - began > 2 * CHUNK - (256 << 10))  # all that passed
    child.kill()
    child.communicate()
    way.sending = None
    agent("publish", source, "models/me/big")
    sent = m.metric("mirrord_http_received_bytes_total") - began
    over.set()
    for name, data in files.items():
        assert m.get(f"/models/me/big/{name}").body == data
    assert sent < 12 * CHUNK + CHUNK // 2, "what had arrived was sent again"
    assert not list(agent.folder.glob("state/uploads/*"))


def test_branches_datasets_and_old_names(agent, m, tmp_path):
    """What is published on a branch, or as a dataset, and what a tree's old name leads to."""
    token = m.token("names", "publish:models/*")

    def hub(path, body):
        return m.put("/models/api/" + path, json.dumps(body).encode(), token=token, method="POST").status
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "a.txt").write_text("on a branch")
    assert hub("repos/create", {"name": "b", "organization": "me"}) == 200
    agent("publish", folder, "models/me/b@dev", code=66)
    assert hub("models/me/b/branch/dev", {}) == 200
    agent("publish", folder, "models/me/b@dev")
    agent("publish", folder, "models/datasets/me/b")
    assert m.get("/models/me/b/a.txt").status == 404 and m.get("/models/datasets/me/b/a.txt").body == b"on a branch"
    assert hub("repos/move", {"fromRepo": "me/b", "toRepo": "me/c"}) == 200
    agent("pull", "models/me/b@dev", "--to", tmp_path / "got")
    assert (tmp_path / "got/a.txt").read_text() == "on a branch"
    agent("publish", folder, "models/me/b", code=66)


def names_of(m, tree):
    return {e["path"]: e["sha256"] for e in json.loads(m.get(f"/models/{tree}/?recursive=1").body)["entries"]}


def test_a_publish_sends_what_the_tree_has_not(agent, m, tmp_path):
    """The same again is the same version; what changed travels, what is gone goes, and the root is that of the files."""
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    files = {"a.bin": span(1, 0, CHUNK), "sub/b c%20.bin": span(2, 0, CHUNK), "config.json": b"{}"}

    def published(**more):
        for name, data in more.get("write", {}).items():
            (source / name).write_bytes(data)
            files[name] = data
        for name in more.get("remove", ()):
            (source / name).unlink()
            del files[name]
        began = m.metric("mirrord_http_received_bytes_total")
        said = json.loads(agent("publish", source, "models/me/gpt", "--json"))
        assert names_of(m, "me/gpt") == {n: hashlib.sha256(d).hexdigest() for n, d in files.items()}
        return said["version"], said["root"], m.metric("mirrord_http_received_bytes_total") - began

    one = published(write=files)
    assert one[0] == "v1"
    until(lambda: m.metric("mirrord_http_received_bytes_total") > 2 * CHUNK)
    same = published()
    assert same[:2] == one[:2] and same[2] < CHUNK
    two = published(write={"config.json": b"{ }", "sub/new": b""})
    assert two[0] == "v2" and two[2] < CHUNK
    three = published(write={"config.json": b"{}"}, remove=["sub/new"])
    assert three[0] == "v3" and three[1] == one[1]
    token = m.token("other", "publish:models/*")
    assert m.put("/models/me/gpt/other.txt", b"somebody else's", token=token).status == 201
    five = published()
    assert five[0] == "v5" and five[1] == one[1]
    agent("pull", "models/me/gpt/", "--to", tmp_path / "back")
    assert {n: (tmp_path / "back" / n).read_bytes() for n in files} == files and (tmp_path / "back/sub/b c%20.bin").exists()
    agent("publish", source, "models/me/gpt", "--if-match", "0" * 64, code=75)
    assert json.loads(agent("publish", source, "models/me/gpt", "--if-match", one[1], "--json"))["version"] == "v5"


def test_a_publish_that_was_committed_long_ago_is_not_this_one(agent, m, way, tmp_path):
    """Killed between the commit and the note of it; then the tree moved on, and the same is published again."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "f").write_bytes(span(1, 0, 3 * CHUNK))
    go = threading.Event()
    way.disturb = lambda target: go.wait() and None if "/commit" in target else None
    child = agent.start("publish", source, "models/me/x")
    until(lambda: way.asked("/commit"))
    (memo,) = agent.folder.glob("state/uploads/*")
    text = memo.read_bytes()
    go.set()
    child.communicate(timeout=120 * SLOW)
    assert child.returncode == 0 and text and not memo.exists()
    memo.write_bytes(text)
    again = json.loads(agent("publish", source, "models/me/x", "--json"))
    assert again["version"] == "v1" and not memo.exists()  # it still is
    other = tmp_path / "other"
    other.mkdir()
    (other / "f").write_bytes(b"another")
    agent("publish", other, "models/me/x")
    memo.write_bytes(text)
    agent("publish", source, "models/me/x")
    assert m.get("/models/me/x/f").body == span(1, 0, 3 * CHUNK)
    m.ctl("snapshot", "rollback", "models", "me/x", "v2")
    memo.write_bytes(text)
    agent("publish", source, "models/me/x")
    assert m.get("/models/me/x/f").body == span(1, 0, 3 * CHUNK)
