"""trainagent prolog, taskprolog and epilog, as slurmd starts them: no rule of its may be broken by a mirror, a
disk, a comment or a signal."""
import fcntl
import json
import os
import pwd
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from harness.fake_mirror import CHUNK, Mirror
from harness.mirrord import BUILD, ROOT, SANITIZERS, until
from harness.slurmd import Slurmd

BIG = random.Random(1).randbytes(3 * CHUNK + 12345)


@pytest.fixture
def mirror():
    m = Mirror()
    m.files.update({"/data/two.txt": b"two", "/data/a/one.bin": BIG, "/data/b/one.bin": b"another"})
    yield m
    m.close()


@pytest.fixture
def node(mirror, tmp_path):
    n = Slurmd(tmp_path, mirror.url)
    yield n
    mirror.go.set()
    for pid in n.workers():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    n.settle()


HELD = 1 << 20  # so much of what comes is let through


def held(node, mirror, comment, **write):
    """A prolog that ends at its deadline, while the mirror holds back what its worker (its pid) waits for."""
    mirror.hold_at = HELD
    node.write(deadline="2s", **write)
    assert "still being downloaded" in node.prolog(comment)
    return node.worker(lambda: mirror.sent >= HELD)


def agent(node, *args, **env):
    return subprocess.run([BUILD / "trainagent", *args], env={**os.environ, **SANITIZERS, "TRAINAGENT_SHELF": str(node.shelf), **env},
                          capture_output=True, text=True, check=False, timeout=120)


# --- what users see ----------------------------------------------------------------------------------------------------------


def test_a_job_finds_what_its_comment_names(node, mirror):
    assert node.prolog("run 7 mirror=data/a/one.bin,data/b/,data/two.txt") == ""
    got, said = node.task()
    assert said == "" and got == {
        "TRAINAGENT_MIRROR": mirror.url, "HF_ENDPOINT": f"{mirror.url}/hf", "PIP_INDEX_URL": f"{mirror.url}/pypi/simple/",
        "PIP_TRUSTED_HOST": "127.0.0.1", "UV_DEFAULT_INDEX": f"{mirror.url}/pypi/simple/",
        "MIRROR_STAGED": str(node.shelf / "jobs/42")}
    assert node.staged() == ["data/a/one.bin", "data/b/one.bin", "data/two.txt"]
    staged = Path(got["MIRROR_STAGED"])
    assert (staged / "data/a/one.bin").read_bytes() == BIG and (staged / "data/b/one.bin").read_bytes() == b"another"
    assert all(f.stat().st_mode & 0o222 == 0 for f in staged.rglob("*") if f.is_file())  # the shelf's own bytes
    node.epilog()
    assert node.left() == []


def test_a_node_with_a_list_of_mirrors(node, mirror):
    """The job's files come from the one that is there; trainagent gets the list, and clients that take one address get one of it."""
    node.mirror = None
    node.write(f'mirror = {{"{mirror.url}", "http://127.0.0.1:1/"}}')
    assert node.prolog("mirror=data/a/one.bin,data/b/") == ""
    got, said = node.task()
    assert said == "" and node.staged() == ["data/a/one.bin", "data/b/one.bin"]
    assert got["TRAINAGENT_MIRROR"] == f"{mirror.url},http://127.0.0.1:1"
    one = got["HF_ENDPOINT"].removesuffix("/hf")
    assert one in (mirror.url, "http://127.0.0.1:1") and got["PIP_INDEX_URL"] == f"{one}/pypi/simple/"


def test_what_a_user_has_set_stays(node):
    node.prolog("mirror=data/two.txt")
    got, _ = node.task(HF_ENDPOINT="http://mine.example", PIP_INDEX_URL="http://mine.example/simple/", MIRROR_STAGED="/of/another/job")
    assert "HF_ENDPOINT" not in got and "PIP_INDEX_URL" not in got and got["MIRROR_STAGED"] == str(node.shelf / "jobs/42")


def test_a_job_that_asks_for_nothing(node):
    for comment in (None, "", "benchmark run 7", "my mirror is nice", "xmirror=data/two.txt"):
        assert node.prolog(comment) == "" and node.left() == []
        got, said = node.task(MIRROR_STAGED="/of/another/job")
        assert said == "" and got["MIRROR_STAGED"] is None
    assert not node.shelf.exists()
    assert node.epilog() == ""


def test_a_nodes_own_exports(node):
    node.write(slurm='export = {"HF_HOME={staged}", "JOB={job}", "BAD NAME=1", "X={unknown}", "MIRROR={mirror} at {host}"}')
    assert set(node.task()[0]) == {"JOB", "MIRROR"}
    node.prolog("mirror=data/two.txt")
    got, _ = node.task()
    assert got["HF_HOME"] == got["MIRROR_STAGED"] and got["JOB"] == "42" and got["MIRROR"] == f"{node.mirror} at 127.0.0.1"


def test_the_nodes_list_is_for_every_job(node):
    node.write(slurm='stage = {"data/two.txt"}')
    node.prolog(None)
    node.task()
    assert node.staged() == ["data/two.txt"]
    node.epilog()
    node.write(slurm='stage = {"data/two.txt"}\ncomments = false')
    node.prolog("mirror=data/b/")
    node.task()
    assert node.staged() == ["data/two.txt"]


def test_the_nodes_token_is_for_the_nodes_list_alone(node, mirror, tmp_path):
    """Anybody writes a comment: what it names is fetched with nobody's rights, unless the node says otherwise."""
    mirror.token = "Bearer mrd_x"
    (tmp_path / "token").write_text("mrd_x\n")
    node.write(f'token_file = "{tmp_path}/token"', slurm='stage = {"data/two.txt"}')
    node.prolog("mirror=data/b/one.bin")
    _, said = node.task(code=1)
    assert "data/b/one.bin" in said and "data/two.txt" not in said and node.staged() == ["data/two.txt"]
    node.epilog()
    node.write(f'token_file = "{tmp_path}/token"', slurm='comment_token = true')
    node.prolog("mirror=data/b/one.bin")
    node.task()
    assert node.staged() == ["data/b/one.bin"]


# --- the job's trouble, never the node's -----------------------------------------------------------------------------------------


def test_what_is_not_there_fails_the_task_with_words(node):
    node.prolog("mirror=data/none.bin,data/two.txt")
    _, said = node.task(code=1)
    assert "data/none.bin: the mirror has no such file" in said and "not started" in said
    assert node.task(code=1, SLURM_LOCALID="3")[1] == ""  # once on a node
    assert node.staged() == ["data/two.txt"]  # it holds up no other
    node.write(slurm="on_missing = warn")
    node.prolog("mirror=data/none.bin,data/two.txt")
    assert "data/none.bin" in node.task()[1]


def test_what_is_optional_may_be_missing(node):
    node.prolog("mirror=data/none.bin?,data/two.txt?")
    got, said = node.task()
    assert "data/none.bin: " in said and "not started" not in said and node.staged() == ["data/two.txt"] and got["MIRROR_STAGED"]


def test_damage_that_lasts(node, mirror):
    mirror.damage = True
    node.prolog("mirror=data/a/one.bin")
    _, said = node.task(code=1)
    assert "does not match its digest" in said and node.staged() == []
    assert not list((node.shelf / "blobs/sha256").rglob("*/*"))


def test_a_mirror_that_is_away(node, mirror):
    mirror.close()
    node.write(slurm="on_unreachable = warn")
    node.prolog("mirror=data/a/one.bin,data/two.txt")  # it may take longer than the prolog does
    assert node.task()[1].count("cannot be reached") == 2


@pytest.mark.parametrize("comment", [
    "mirror=", "mirror=data", "mirror=data/a,", "mirror=,data/a", "mirror=/etc/passwd", "mirror=data/../../etc", "mirror=http://x.example/y",
    "mirror=-/blob/x", "mirror=--help/x", "mirror=data/$(id)", "mirror=data/`id`", "mirror=data/a;id", "mirror=data/*", "mirror=data/%2e%2e/x",
    "mirror=data/a#sha256=12", "mirror=data/a?b", "mirror=data/a mirror=data/b", "mirror=data/\x1b[2J", "mirror=" + "data/x," * 40,
    "mirror=data/" + "x" * 600, "mirror=data//x", "mirror=data/./x", "mirror=\xff\xfe/x"])
def test_a_comment_is_anybodys(node, mirror, comment):
    node.prolog(comment)
    _, said = node.task(code=1)
    assert "the syntax of the comment is invalid" in said and said.replace("\n", "").isprintable()
    assert not node.shelf.exists() and mirror.log == []
    node.epilog()
    assert node.left() == []


def test_lines_of_a_comment_are_no_lines_of_ours(node):
    node.prolog("mirror=data/none\nexport LD_PRELOAD=/tmp/x.so\nprint owned")
    got, said = node.task(code=1)
    assert "LD_PRELOAD" not in got and "owned" not in said


def test_a_job_number_is_none(node):
    for job in ("../../x", "", "42/../43", "4" * 30, "-1"):
        code, said = node.end(node.start("prolog", job, "mirror=data/two.txt"))
        assert code == 0 and said.count("\n") == 1
        assert node.end(node.start("epilog", job))[0] == 0
        node.task(job)
    assert not node.shelf.exists() and not node.tickets.exists()


@pytest.mark.parametrize("text", ["mirror = ", "nonsense = 1", "slurm { deadline = soon }", "slurm { on_missing = perhaps }",
                                  "slurm { }\nslurm { }", "user = nobody-of-that-name", "shelf = 5 6"])
def test_a_wrong_file_of_the_node(node, text):
    """Jobs that want nothing of it run; the others are told. Of a file that is wrong nothing counts: tickets are where they are without one."""
    if os.geteuid() != 0:
        pytest.skip("the usual place of tickets is root's")
    (node.folder / "node.conf").write_text(text)
    job = str(10 ** 18 + os.getpid())
    assert node.end(node.start("prolog", job)) == (0, "")
    node.task(job)
    assert node.end(node.start("prolog", job, "mirror=data/two.txt?")) == (0, "")
    assert "not set up" in node.task(job)[1]
    assert node.end(node.start("prolog", job, "mirror=data/two.txt")) == (0, "")
    assert "not set up" in node.task(job, code=1)[1]
    assert node.end(node.start("epilog", job))[0] == 0
    assert not Path("/run/trainagent", job).exists()


def test_a_nodes_list_fails_no_job(node):
    """A list with a slip, or of what there is not: told, and jobs run; unless the node says that they need it."""
    for stage, words in (("http://x/", ""), ("data/none", "data/none: the mirror has no such file")):
        node.write(slurm=f'stage = {{"{stage}"}}')
        node.prolog(None)
        assert words in node.task()[1]
        node.epilog()
    node.write(slurm='stage = {"data/none"}\nstage_required = true')
    node.prolog(None)
    assert "data/none: " in node.task(code=1)[1]


def test_a_slip_drains_no_node(node):
    for name in ("prolog", "epilog"):
        code, said = node.end(node.start(name, args=["--dedline", "3s"]))
        assert code == 0 and "did you mean --deadline?" in said
        done = subprocess.run([BUILD / "trainagent", name, "--dedline", "3s"], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 64
        done = subprocess.run([BUILD / "trainagent", "pull", name, "--dedline", "3s"], capture_output=True, text=True, check=False, timeout=60,
                              env=dict(os.environ, SLURM_JOB_ID="42"))  # a job's own
        assert done.returncode == 64


def look(node, *args, **env):
    """What the prolog makes of a node whose preflight.conf lies beside its own file; the limit is not what is tested."""
    return node.end(node.start("prolog", *args, TRAINAGENT_PREFLIGHT=str(node.folder / "preflight.conf"), **env))


def sick(node):
    """A folder of the node's that is none: DISK_ERROR, whatever the machine that tests has."""
    (node.folder / "file").write_text("")
    return {"TRAINAGENT_STATE": str(node.folder / "file/state")}


@pytest.mark.parametrize("preflight,drain,code", [("true", "yes", 1), ("true", "no", 0), ("false", "yes", 0)])
def test_only_a_sick_node_is_drained(node, preflight, drain, code):
    """And only where its administrator says so, twice. The job gets another."""
    (node.folder / "preflight.conf").write_text(f'preflight {{ only = {{"disk"}} timeout = 60s drain = {drain} }}')
    node.write(slurm=f"preflight = {preflight}")
    got, said = look(node, 42, "mirror=data/two.txt", **sick(node))
    assert got == code and ("not fit" in said) == (code == 1) and said.count("\n") == code
    assert (node.ticket() is None) == (code == 1)
    if code == 0:
        assert node.task()[1] == ""


@pytest.mark.parametrize("full", ['only = {"memory"} memory = "1000000t"', 'only = {"disk"} disk_free = "1000000t"'])
def test_what_jobs_fill_drains_no_node(node, full):
    (node.folder / "preflight.conf").write_text(f"preflight {{ {full} timeout = 60s drain = yes }}")
    node.write(slurm="preflight = true")
    assert look(node, 42, "mirror=data/two.txt") == (0, "") and node.task()[1] == ""


def test_a_mirror_that_is_away_is_no_sickness(node, mirror):
    mirror.close()
    (node.folder / "preflight.conf").write_text('preflight { only = {"mirror", "memory"} timeout = 60s latency = 1ms drain = yes }')
    node.write(slurm="preflight = true")
    assert look(node, 42, None) == (0, "")


def looking(node):
    """A prolog whose look at the node does not end: preflight's file is a pipe that nobody writes into."""
    os.mkfifo(node.folder / "preflight.conf")
    return node.start("prolog", 42, "mirror=data/two.txt", TRAINAGENT_PREFLIGHT=str(node.folder / "preflight.conf"))


def test_a_look_that_does_not_end_keeps_no_job(node):
    node.write(deadline="2s", slurm="preflight = true")
    code, said = node.end(looking(node))
    assert code == 0 and said in ("", "trainagent: the files of job 42 are still being downloaded\n")
    assert node.task()[1] == "" and node.staged() == ["data/two.txt"]


def test_a_prolog_that_is_ended_while_it_looks(node):
    """Its job does not start without its files."""
    node.write(slurm="preflight = true")
    child = looking(node)
    until(lambda: node.ticket() is not None and len(node.workers()) == 2)
    child.kill()
    child.communicate()
    node.settle()
    assert "was killed" in node.task(code=1)[1]


def test_whoever_locks_a_ticket_keeps_no_task(node):
    """All may read it, and so lock it."""
    node.prolog("mirror=data/two.txt")
    node.write(wait="1s")
    with open(node.tickets / "42", encoding="utf-8") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        assert node.task()[1] == ""


# --- processes --------------------------------------------------------------------------------------------------------------------


def test_a_mirror_that_hangs_keeps_no_prolog(node, mirror):
    """It ends at its deadline while nothing moves; what fetches lives on, whatever slurmd does to the prolog's group; the task waits."""
    held(node, mirror, "mirror=data/a/one.bin")
    assert node.ticket()["state"] == "staging"
    mirror.go.set()
    got, said = node.task()
    assert said == "" and Path(got["MIRROR_STAGED"], "data/a/one.bin").read_bytes() == BIG
    node.settle()


def test_a_task_waits_only_so_long(node, mirror):
    held(node, mirror, "mirror=data/a/one.bin", wait="1s")
    assert "still being downloaded; the task is not started" in node.task(code=1)[1]
    node.write(deadline="2s", wait="1s", slurm="on_late = warn")
    assert node.task()[1] == "mirror: the file is still being downloaded"


def test_the_worker_has_nothing_of_slurmds(node, mirror):
    pid = held(node, mirror, "mirror=data/a/one.bin")
    assert os.getsid(pid) != os.getsid(0) and os.getpgid(pid) == os.getsid(pid) != pid
    fds = {f.name: os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir()}
    assert [fds[n] for n in "012"] == ["/dev/null"] * 3
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


def test_an_epilog_ends_what_is_still_under_way(node, mirror):
    held(node, mirror, "mirror=data/two.txt,data/a/one.bin")
    node.epilog()
    node.settle()
    assert node.left() == []
    mirror.go.set()  # what it had is kept
    mirror.hold_at = None
    node.write()
    node.prolog("mirror=data/a/one.bin", job=43)
    assert node.task(43)[1] == "" and node.staged(43) == ["data/a/one.bin"]


def test_two_prologs_share_a_download(node, mirror):
    mirror.hold_at = HELD
    first = node.start("prolog", 42, "mirror=data/a/one.bin")
    until(lambda: mirror.sent >= HELD)
    second = node.start("prolog", 43, "mirror=data/a/one.bin")
    until(lambda: len(node.workers()) == 4)  # two that wait, two that work
    mirror.go.set()
    assert node.end(first) == (0, "") and node.end(second) == (0, "")
    assert node.task(42)[1] == "" and node.task(43)[1] == "" and node.staged(43) == ["data/a/one.bin"]
    assert mirror.sent < 2 * len(BIG)
    node.epilog(42)
    assert node.staged(43) == ["data/a/one.bin"] and node.left() == ["43", "43", "43.json"]


def test_killed_at_any_instant(node, mirror):
    """SIGKILL to the prolog, then to the worker: the task is told, nothing is broken, the next job goes on where it was."""
    seed = random.Random(5)
    told = 0
    for i in range(12):
        child = node.start("prolog", 100 + i, "mirror=data/a/one.bin,data/two.txt")
        time.sleep(seed.random() * 0.05)
        child.kill() if i % 2 else os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        for pid in node.workers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        node.settle()
        if node.ticket(100 + i) is not None and node.ticket(100 + i)["state"] == "staging":
            assert "was killed" in node.task(100 + i, code=1)[1]
            told += 1
        node.epilog(100 + i)
    assert node.left() == []
    node.prolog("mirror=data/a/one.bin,data/two.txt")
    got, said = node.task()
    assert said == "" and Path(got["MIRROR_STAGED"], "data/a/one.bin").read_bytes() == BIG


@pytest.mark.parametrize("point", ["staging.record", "staging.pinned"])
def test_killed_between_two_steps(node, point):
    child = node.start("prolog", 42, "mirror=data/two.txt", MIRROR_CRASH_AT=point)
    assert node.end(child) == (0, "")
    assert "was killed" in node.task(code=1)[1]
    assert "42.json" in node.left()
    node.prolog("mirror=data/two.txt")  # the job again, and no epilog in between
    assert node.task()[1] == "" and node.staged() == ["data/two.txt"]
    node.epilog()
    assert node.left() == []


def test_a_job_that_is_requeued_while_it_is_staged(node, mirror):
    """Its first worker sees that the ticket has another's, and the second waits for it."""
    first = held(node, mirror, "mirror=data/a/one.bin")
    node.prolog("mirror=data/two.txt")
    until(lambda: first not in node.workers())
    mirror.go.set()
    assert node.task()[1] == "" and node.staged() == ["data/two.txt"]


# --- the shelf ----------------------------------------------------------------------------------------------------------------------


MANY = {f"data/many/{i % 3}/{i}.bin": b"file %d" % i for i in range(20)}


@pytest.fixture
def many(mirror):
    mirror.files.update({f"/{name}": data for name, data in MANY.items()})
    return mirror


def staged_bytes(node, job=42):
    folder = node.shelf / "jobs" / str(job)
    return {name: (folder / name).read_bytes() for name in node.staged(job)}


def folder_of(node, job=42):
    return (node.shelf / "jobs" / str(job) / "data/many").stat().st_ino


def spares(node):
    return sorted(f.name for f in node.shelf.glob("spare/*/*"))


def run_job(node, comment, job):
    node.prolog(comment, job)
    assert node.task(job)[1] == ""


def test_a_folder_is_handed_on(node, many):
    """A job's links are the next one's, when it wants the same; what is asked for is the listing alone."""
    run_job(node, "mirror=data/many/", 42)
    assert staged_bytes(node) == MANY and spares(node) == []
    first, asked = folder_of(node), len(many.log)
    node.epilog(42)
    assert node.left() == [] and len(spares(node)) == 1
    run_job(node, "mirror=data/many/", 43)
    assert folder_of(node, 43) == first and staged_bytes(node, 43) == MANY and spares(node) == [] and len(many.log) == asked + 1
    run_job(node, "mirror=data/many/", 44)  # beside it
    assert folder_of(node, 44) != first and staged_bytes(node, 44) == MANY and staged_bytes(node, 43) == MANY
    node.epilog(43)
    node.epilog(44)
    assert len(spares(node)) == 2
    run_job(node, "mirror=data/many/0/", 45)  # is none of it
    assert node.staged(45) == sorted(name for name in MANY if name.startswith("data/many/0/")) and len(spares(node)) == 2
    many.files["/data/many/1/new.bin"] = b"new"
    run_job(node, "mirror=data/many/", 46)
    assert staged_bytes(node, 46) == {**MANY, "data/many/1/new.bin": b"new"} and len(spares(node)) == 2


@pytest.mark.parametrize("harm", ["rm data/many/0/3.bin", "echo x > data/many/mine", "mv data/many/1/1.bin data/many/2/1.bin",
                                  "chmod u+w data/many/0/0.bin; echo x >> data/many/0/0.bin"])
def test_a_folder_that_a_job_has_changed_is_made_anew(node, many, harm):
    """A job that runs as the node's user can."""
    run_job(node, "mirror=data/many/", 42)
    subprocess.run(harm, shell=True, cwd=node.shelf / "jobs/42", check=True)
    node.epilog(42)
    run_job(node, "mirror=data/many/", 43)
    assert staged_bytes(node, 43) == MANY and spares(node) == []


def test_wishes_within_each_other(node, many):
    for job in (42, 43, 44):
        run_job(node, "mirror=data/many/,data/many/1/1.bin,data/many/2/", job)
        assert staged_bytes(node, job) == MANY
        node.epilog(job)
    run_job(node, "mirror=data/many/0/0.bin,data/many/", 45)
    assert staged_bytes(node, 45) == MANY
    run_job(node, "mirror=data/many/", 46)
    assert staged_bytes(node, 46) == MANY


@pytest.mark.parametrize("point", ["staging.spare", "staging.pinned", "staging.laid"])
def test_killed_while_a_folder_is_handed_on(node, many, point):
    if point != "staging.laid":
        run_job(node, "mirror=data/many/", 42)
        node.epilog(42)
    assert node.end(node.start("prolog", 43, "mirror=data/many/", MIRROR_CRASH_AT=point)) == (0, "")
    assert "was killed" in node.task(43, code=1)[1]
    run_job(node, "mirror=data/many/", 43)  # the job again, and no epilog in between
    assert staged_bytes(node, 43) == MANY
    node.epilog(43)
    assert node.left() == []
    assert agent(node, "gc", "--keep", "0").returncode == 0
    kept = ("journal", *(f"small-{i:x}" for i in range(16)))  # the locks of claims
    left = [f for f in node.shelf.rglob("*") if not f.is_dir() and f.parent.name != "known" and f.name not in kept]
    assert left == [] and spares(node) == []


def test_a_list_that_was_used_is_a_use_of_its_files(node, many):
    """gc keeps what was used last, also where a folder was handed on and no file of it was looked at."""
    run_job(node, "mirror=data/many/", 42)
    node.epilog(42)
    old = time.time() - 86400
    (node.shelf / "journal").unlink()
    for f in node.shelf.glob("known/*"):
        os.utime(f, (old, old))
    run_job(node, "mirror=data/many/", 43)
    node.epilog(43)
    assert [f for f in node.shelf.glob("known/*") if f.stat().st_mtime > old + 3600]


def test_a_head_that_has_not_moved(mirrord, tmp_path):
    """One question, and an answer without a body; at a root, none."""
    m = mirrord('repo "models" { protocol = "hosted" }')
    (tmp_path / "token").write_text(m.token("t", "publish:models/*"))
    for name, data in MANY.items():
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_bytes(data)
    node = Slurmd(tmp_path, m.url(""))
    mine = {"TRAINAGENT_MIRROR": m.url(""), "TRAINAGENT_TOKEN_FILE": str(tmp_path / "token")}
    said = agent(node, "publish", str(tmp_path / "source"), "models/me/many", "--json", **mine)
    assert said.returncode == 0, said
    root = json.loads(said.stdout)["root"]

    for wish, job in ("models/me/many/", 42), (f"models/me/many@{root}/", 43):
        run_job(node, f"mirror={wish}", job)
        node.epilog(job)
        run_job(node, f"mirror={wish}", job)
        assert {name.split("/", 3)[3]: data for name, data in staged_bytes(node, job).items()} == MANY
        node.epilog(job)
    asked = m.answered("/models/me/many/", 3, path="/models/me/many/")
    assert sorted(e["status"] for e in asked) == [200, 304, 404]  # the second job, the first, and who published
    m.remove()
    run_job(node, f"mirror=models/me/many@{root}/", 44)
    node.prolog("mirror=models/me/many/", 45)
    assert "cannot be reached" in node.task(45, code=1)[1]


def test_what_a_token_brought_is_no_answer_without_it(mirrord, tmp_path):
    """The node's list is fetched with its token; a comment that names the same, for good, asks for itself."""
    m = mirrord('repo "models" { protocol = "hosted" access { anonymous = none } }')
    (tmp_path / "token").write_text(m.token("t", "publish:models/*"))
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a").write_bytes(b"secret")
    mine = {"TRAINAGENT_MIRROR": m.url(""), "TRAINAGENT_TOKEN_FILE": str(tmp_path / "token")}
    node = Slurmd(tmp_path, m.url(""))
    root = json.loads(agent(node, "publish", str(tmp_path / "source"), "models/me/x", "--json", **mine).stdout)["root"]
    wish = f"models/me/x@{root}/"
    node.write(f'token_file = "{tmp_path}/token"', slurm=f'stage = {{"{wish}"}}')
    node.prolog(None, 42)
    assert node.task(42)[1] == "" and node.staged(42) == [f"{wish}a"]
    node.write()
    node.prolog(f"mirror={wish}", 43)
    assert "does not permit this node to read the file" in node.task(43, code=1)[1] and node.staged(43) == []


def test_a_job_pins_what_it_uses(node):
    node.prolog("mirror=data/b/one.bin")
    node.task()
    blobs = lambda: sorted(f.name for f in (node.shelf / "blobs").rglob("*") if f.is_file())  # noqa: E731
    had = blobs()
    assert agent(node, "pull", "data/two.txt", TRAINAGENT_MIRROR=node.mirror).returncode == 0 and len(blobs()) == 2
    assert agent(node, "gc", "--keep", "0").returncode == 0 and blobs() == had
    node.epilog()
    assert agent(node, "gc", "--keep", "0").returncode == 0 and blobs() == []


def test_locks_of_jobs_go_with_them(node, mirror):
    locks = lambda: {f.name for f in (node.shelf / "locks").iterdir()}  # noqa: E731
    node.prolog("mirror=data/two.txt", 41)
    node.epilog(41)
    had = locks()  # of the file
    for job in range(42, 46):
        node.prolog("mirror=data/two.txt", job)
        assert len(locks()) == len(had) + 1
        node.epilog(job)
        assert locks() == had
    held(node, mirror, "mirror=data/a/one.bin")
    node.epilog()
    node.settle()
    assert len(locks() - had) == 1  # of what it had begun to fetch


def test_records_of_jobs_long_gone_are_swept(node):
    """After a power cut there was no epilog; tickets lie in memory, so the job is known to be gone."""
    for job in (42, 43, 44):
        node.prolog("mirror=data/two.txt", job)
    old = time.time() - 7200
    for name in ("42.json", "42", "43.json", "43"):
        os.utime(node.shelf / "jobs" / name, (old, old))
    (node.tickets / "42").unlink()
    (node.tickets / "44").unlink()  # young: its prolog may just begin
    node.epilog(999)
    assert node.left() == ["43", "43", "43.json", "44", "44.json"]


def test_gc_sweeps_records_too(node, tmp_path):
    """Where no job runs any more there is no epilog either. A local cache that is not the node's, and tickets that cannot be asked, leave all as it is."""
    env = {"TRAINAGENT_CONF": str(tmp_path / "node.conf")}
    for job in (42, 43):
        node.prolog("mirror=data/two.txt", job)
    old = time.time() - 7200
    for name in ("42.json", "42", "43.json", "43"):
        os.utime(node.shelf / "jobs" / name, (old, old))
    (node.tickets / "42").unlink()
    (tmp_path / "other").mkdir()
    node.tickets.rename(tmp_path / "away")
    assert agent(node, "gc", **env).returncode == 0 and "42.json" in node.left()
    (tmp_path / "away").rename(node.tickets)
    text = (tmp_path / "node.conf").read_text()
    (tmp_path / "node.conf").write_text(text.replace(str(node.shelf), str(tmp_path / "other")))
    assert agent(node, "gc", **env).returncode == 0 and "42.json" in node.left()
    (tmp_path / "node.conf").write_text(text)
    assert agent(node, "gc", **env).returncode == 0
    assert node.left() == ["43", "43", "43.json"]


@pytest.mark.parametrize("comment, on_node, code", [("mirror=data/two.txt", "fail", 1), ("mirror=data/two.txt", "warn", 0),
                                                    ("mirror=data/two.txt?", "fail", 0), ("a run", "fail", 0)])
def test_a_ticket_that_cannot_be_written(node, tmp_path, comment, on_node, code):
    """What a job cannot do without keeps it from starting all the same: it would find no ticket, and nothing that it had asked for."""
    (tmp_path / "run").write_text("no folder")
    node.write(slurm=f"on_node = {on_node}")
    status, said = node.end(node.start("prolog", 42, comment))
    assert status == 0 and ("run" in said) == ("mirror=" in comment)
    _, told = node.task(code=code)
    assert ("this node is not set up to download files" in told) == ("mirror=" in comment)
    (tmp_path / "run").unlink()
    node.prolog("mirror=data/b/one.bin")  # requeued, and there is room again
    assert node.task()[1] == "" and node.staged() == ["data/b/one.bin"]
    node.epilog()
    assert node.left() == []


def test_with_a_digest_nothing_is_asked(node, mirror):
    import hashlib
    wish = f"mirror=data/a/one.bin#sha256={hashlib.sha256(BIG).hexdigest()}"
    node.prolog(wish)
    assert node.task()[1] == ""
    node.epilog()
    asked = len(mirror.log)
    node.prolog(wish)
    assert node.task()[1] == "" and node.staged() == ["data/a/one.bin"] and len(mirror.log) == asked


def test_a_repository_of_a_hub(mirrord, hub, tmp_path):
    """As its client keeps it; and at a commit that was here before nobody is asked, be the mirror away."""
    files = {"config.json": b'{"a": 1}', "sub/vocab.txt": b"words", "model.safetensors": BIG}
    demo = hub.repo("org/demo", files=files)
    m = mirrord(hub.config())
    node = Slurmd(tmp_path, m.url(""))

    def snapshot(job):
        got, said = node.task(job)
        folder = Path(got["MIRROR_STAGED"], "hub/models--org--demo/snapshots", demo.sha)
        assert said == "" and {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()} == files
        return folder

    node.prolog("mirror=hf/org/demo@main", 1)
    assert (snapshot(1).parents[1] / "refs/main").read_text() == demo.sha
    node.prolog(f"mirror=hf/org/demo@{demo.sha}", 2)
    snapshot(2)
    m.remove()
    node.prolog(f"mirror=hf/org/demo@{demo.sha}", 3)
    snapshot(3)
    job = node.ticket(3)["artifacts"][0]
    assert job["outcome"] == "here" and job["fetched_bytes"] == 0 and job["size"] == sum(map(len, files.values()))
    for f in (node.shelf / "blobs").rglob("*"):  # one was changed, through a name that root has: it is not what it was
        if f.is_file() and f.stat().st_size == len(BIG):
            f.chmod(0o644)
            f.write_bytes(BIG[::-1])
    node.write(slurm="on_unreachable = warn")
    node.prolog(f"mirror=hf/org/demo@{demo.sha}", 4)
    assert "cannot be reached" in node.task(4)[1]
    for job in (1, 2, 3, 4):
        node.epilog(job)
    assert node.left() == []


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    where = tmp_path / "disk"
    where.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", where], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {done.stderr.strip()}")
    yield where
    subprocess.run(["umount", "-l", where], check=True)


@pytest.mark.parametrize("ballast", [0, 8 << 20])
def test_a_full_disk_fails_the_job(node, small_disk, ballast):
    """Too small for the file; and so full that not even a record finds room."""
    node.shelf = small_disk / "cache"
    node.shelf.mkdir()
    node.write()
    with open(small_disk / "ballast", "wb") as f:
        try:
            f.write(bytes(ballast))
            f.flush()
        except OSError:
            pass
    assert node.prolog("mirror=data/a/one.bin") == ""
    _, said = node.task(code=1)
    assert "disk is full" in said
    (small_disk / "ballast").unlink()
    node.epilog()
    assert node.left() == []
    node.prolog("mirror=data/b/one.bin")
    assert node.task()[1] == ""


# --- rights --------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def open_folder():
    """One that every user can enter."""
    where = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    where.chmod(0o755)
    yield where
    shutil.rmtree(where)


def test_nothing_of_the_network_is_done_as_root(mirror, open_folder):
    if os.geteuid() != 0:
        pytest.skip("giving up rights needs root")
    nobody = pwd.getpwnam("nobody")
    node = Slurmd(open_folder, mirror.url, user="nobody")
    node.shelf.mkdir()
    os.chown(node.shelf, nobody.pw_uid, nobody.pw_gid)
    pid = held(node, mirror, "mirror=data/a/one.bin")
    status = Path(f"/proc/{pid}/status").read_text()
    assert re.search(rf"^Uid:(\s+{nobody.pw_uid}){{4}}$", status, re.M) and re.search(r"^Groups:\s*$", status, re.M)
    assert re.search(r"^NoNewPrivs:\s+1", status, re.M) and re.search(r"^CapEff:\s+0+$", status, re.M)
    mirror.go.set()
    assert node.task()[1] == ""
    for f in (node.shelf / "jobs").rglob("*"):
        assert f.stat().st_uid == nobody.pw_uid and f.stat().st_mode & 0o022 == 0
    assert (node.tickets / "42").stat().st_uid == 0 and (node.tickets / "42").stat().st_mode & 0o777 == 0o644
    node.epilog()
    node.settle()
    assert node.left() == []


def test_root_makes_nothing_on_the_nodes_shelf(mirror, open_folder):
    """What it made there its user could not write into, and every job would go without its files."""
    if os.geteuid() != 0:
        pytest.skip("giving up rights needs root")
    nobody = pwd.getpwnam("nobody")
    node = Slurmd(open_folder, mirror.url, user="nobody")
    conf = {"TRAINAGENT_CONF": str(node.folder / "node.conf"), "TRAINAGENT_SHELF": "", "TRAINAGENT_STATE": str(node.folder / "state")}
    for named in ("", str(node.shelf), f"{node.shelf}/."):
        done = agent(node, "pull", "data/two.txt", **{**conf, "TRAINAGENT_SHELF": named})
        assert done.returncode == 77 and "runuser -u nobody -- trainagent" in done.stderr, done
        for verb in ("status", "gc"):  # they become its user
            done = agent(node, verb, **{**conf, "TRAINAGENT_SHELF": named})
            assert done.returncode == 0, done
    assert {f.stat().st_uid for f in [node.shelf, *node.shelf.rglob("*")]} == {nobody.pw_uid}
    node.prolog("mirror=data/two.txt")
    assert node.task()[1] == ""
    own = {**conf, "TRAINAGENT_SHELF": str(node.folder / "own")}
    assert agent(node, "pull", "data/two.txt", **own).returncode == 0
    node.epilog()
    node.settle()


def test_the_nodes_token_is_for_the_nodes_mirror_alone(node, mirror, tmp_path):
    mirror.token = "Bearer mrd_x"
    (tmp_path / "token").write_text("mrd_x\n")
    conf = {"TRAINAGENT_CONF": str(node.folder / "node.conf")}
    node.write(f'token_file = "{tmp_path}/token"')
    assert agent(node, "pull", "data/two.txt", **conf).returncode == 0
    assert agent(node, "pull", "data/b/one.bin", "--mirror", f"{mirror.url}/", **conf).returncode == 0
    node.mirror = "http://127.0.0.1:9"
    node.write(f'token_file = "{tmp_path}/token"')
    done = agent(node, "pull", "data/a/one.bin", "--mirror", mirror.url, **conf)
    assert done.returncode == 77, done
    done = agent(node, "pull", "data/a/one.bin", "--mirror", mirror.url, "--token-file", tmp_path / "token", **conf)
    assert done.returncode == 0, done


def test_a_user_that_there_is_not(mirror, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("giving up rights needs root")
    node = Slurmd(tmp_path, mirror.url, user="nobody-of-that-name")
    node.prolog("mirror=data/two.txt")
    assert "does not exist on this machine" in node.task(code=1)[1]
    node.epilog()
    assert node.left() == [] and mirror.log == []


# --- words ---------------------------------------------------------------------------------------------------------------------------


def test_the_manual_has_every_key():
    manual = (ROOT / "docs/man/trainagent.conf.5").read_text()
    keys = re.findall(r"^(?:FILE|SLURM|PEERS)_KEY\((\w+),", (ROOT / "agent/node_conf.def").read_text(), re.M)
    keys += ["on_" + key for key in re.findall(r"^OUTCOME\(\w+, (\w+),", (ROOT / "agent/outcomes.def").read_text(), re.M)]
    assert len(keys) > 15
    for key in keys:
        assert re.search(rf"\b{key}\b", manual), key


def test_the_example_is_taken(node):
    """With all its keys, and its places turned to ours."""
    text = (ROOT / "conf/examples/trainagent.conf").read_text()
    text = re.sub(r"^( *)# ?(?=\w+ *=)", r"\1", text, flags=re.M)  # what is told as absent
    text = re.sub(r"^# (?=peers \{|    \w+ *=|\})", "", text, flags=re.M)  # a section that is not there
    assert "\npeers {\n    address =" in text
    assert agent(node, "status", "--node-file", str(ROOT / "conf/examples/trainagent.conf")).returncode == 0
    (node.folder / "token").write_text("mrd_x\n")
    text = text.replace("/etc/trainagent/token", str(node.folder / "token")).replace("plaintext_token = false", "plaintext_token = true")
    (node.folder / "all.conf").write_text(text)
    done = agent(node, "status", "--node-file", str(node.folder / "all.conf"))
    assert done.returncode == 0, done.stderr
