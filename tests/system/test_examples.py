"""The examples that are no configuration of mirrord's: Slurm's scripts as slurmd runs them, cron's lines, a pod, Prometheus' rules."""
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import time

import pytest

from harness.mirrord import BUILD, ROOT

EXAMPLES = ROOT / "conf/examples"
SCRIPTS = ["slurm-prolog", "slurm-taskprolog", "slurm-epilog", "train.sbatch"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_sound(name, client):
    text = (EXAMPLES / name).read_text()
    subprocess.run([client(text.splitlines()[0][2:].split("/")[-1]), "-n", EXAMPLES / name], check=True, timeout=60)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-S", "warning", "-e", "SC1091", EXAMPLES / name], check=True, timeout=60)


class Node:
    """A node's files in a folder: the scripts with their fixed paths turned to it, run with what slurmd gives them and no more."""

    def __init__(self, folder, mirror):
        self.folder, self.shelf = folder, folder / "cache"
        (folder / "default").write_text(f"TRAINAGENT_MIRROR={mirror}\n")
        for name in SCRIPTS[:3]:
            text = (EXAMPLES / name).read_text()
            for old, new in {"/etc/default/trainagent": folder / "default", "/var/cache/trainagent": self.shelf,
                             "PATH=/usr/local/bin": f"PATH={BUILD}",
                             "user=trainagent": f"user={pwd.getpwuid(os.getuid()).pw_name}"}.items():
                text = text.replace(old, str(new))
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def run(self, name, **env):
        env = {"SLURM_JOB_ID": "42", "SLURM_JOB_USER": "me", **env}
        done = subprocess.run([self.folder / name], env=env, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=240, check=False)
        assert done.returncode == 0 and done.stderr == "", done
        return done.stdout

    def bring(self, comment, **env):
        """On a busy machine the prolog gives up sooner than it should; the task's waits."""
        assert self.run("slurm-prolog", SLURM_JOB_COMMENT=comment) == ""
        return self.run("slurm-taskprolog", **env)

    def staged(self):
        folder = self.shelf / "jobs/42"
        return sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file() and f.name[0] != ".")


@pytest.fixture
def node(mirrord, origin, tmp_path):
    origin.put("/a/one.bin", size=3 << 20)
    origin.put("/two.txt", body=b"two")
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" }}')
    node = Node(tmp_path, m.url(""))
    node.mirror, node.origin = m, origin
    return node


def test_a_job_finds_what_its_comment_names(node):
    said = node.bring("mirror=data/a/one.bin,data/two.txt", HF_ENDPOINT="http://mine.example")
    assert node.staged() == ["one.bin", "two.txt"]
    url = node.mirror.url("")
    assert sorted(said.splitlines()) == sorted([
        f"export TRAINAGENT_MIRROR={url}", f"export PIP_INDEX_URL={url}/pypi/simple/", f"export PIP_TRUSTED_HOST=127.0.0.1",
        f"export UV_DEFAULT_INDEX={url}/pypi/simple/", f"export MIRROR_STAGED={node.shelf}/jobs/42"])
    assert (node.shelf / "jobs/42/two.txt").read_bytes() == b"two"
    node.run("slurm-epilog")
    assert not (node.shelf / "jobs/42").exists()
    asked = node.mirror.upstream_requests()
    node.bring("mirror=data/two.txt")
    assert node.staged() == ["two.txt"] and node.mirror.upstream_requests() - asked <= 1


def test_what_cannot_be_had_is_the_jobs_trouble(node):
    said = node.bring("mirror=data/none.bin,data/two.txt")
    assert node.staged() == ["two.txt"]
    assert "print mirror: could not bring data/none.bin" in said
    assert "none.bin" in (node.shelf / "jobs/42/.log").read_text()


@pytest.mark.parametrize("comment", ["", "mirror=", "benchmark run 7", "mirror=$(touch${IFS}%s/owned)", "mirror=a;touch %s/owned",
                                     "mirror=`touch %s/owned`", "mirror=data/a\ntouch %s/owned", "mirror=data/*"])
def test_a_comment_is_anybodys(node, comment, tmp_path):
    comment = comment.replace("%s", str(tmp_path))
    assert node.run("slurm-prolog", SLURM_JOB_COMMENT=comment) == ""
    assert not (tmp_path / "owned").exists() and not node.shelf.exists()
    assert node.run("slurm-prolog", SLURM_JOB_COMMENT="mirror=data/two.txt", SLURM_JOB_ID="../../x") == ""
    assert not node.shelf.exists()


def test_an_option_is_no_file(node):
    node.bring("mirror=--help,data/two.txt")
    assert node.staged() == ["two.txt"] and (node.shelf / "jobs/42/.failed").read_text() == "--help\n"


def test_a_slow_mirror_keeps_no_prolog(node):
    """It ends by itself while the file is still on its way, and what fetches lives on: slurmd ends the prolog's whole group."""
    script = node.folder / "slurm-prolog"
    script.write_text(script.read_text().replace("wait_s=20", "wait_s=1"))
    node.origin.put("/slow.bin", size=1 << 20, rate=256 << 10)
    done = subprocess.Popen([script], env={"SLURM_JOB_ID": "42", "SLURM_JOB_COMMENT": "mirror=data/slow.bin"}, cwd="/",
                            stdout=subprocess.PIPE, process_group=0)
    assert done.stdout.read() == b"" and done.wait() == 0  # nobody else holds its output
    try:
        os.killpg(done.pid, 9)
    except ProcessLookupError:
        pass
    assert "MIRROR_STAGED" in node.run("slurm-taskprolog")  # it waits
    assert node.staged() == ["slow.bin"]


def test_without_a_mirror_nothing_is_said(node):
    (node.folder / "default").unlink()
    assert node.run("slurm-taskprolog") == ""


def test_lines_of_cron():
    lines = [line for line in (EXAMPLES / "cron").read_text().splitlines() if line and line[0] != "#" and "=" not in line.split()[0]]
    assert lines
    for line in lines:
        fields = line.split()
        assert all(re.fullmatch(r"[\d*/,-]+", f) for f in fields[:5]) and re.fullmatch(r"[a-z]+", fields[5]), line


def test_the_pod_is_yaml():
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    volumes = {v["name"] for v in pod["volumes"]}
    for c in pod["initContainers"] + pod["containers"]:
        assert {v["name"] for v in c["volumeMounts"]} <= volumes and all(isinstance(e["value"], str) for e in c["env"])


def test_rules_for_prometheus(client):
    subprocess.run([client("promtool"), "check", "rules", EXAMPLES / "alerts.yml"], check=True, timeout=60)
