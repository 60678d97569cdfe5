"""Archives that are made to fill a disk, on one that is small: what comes out of them is bounded by the room there is, and by their own size."""
import io
import os
import random
import re
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest

from system.test_agent_faulty_mirror import agent, member, mirror, tar_of  # noqa: F401 (two fixtures)

MIB = 1 << 20
NOISE = random.Random(3).randbytes(3 * MIB)


@pytest.fixture
def small_disk(agent, tmp_path):  # noqa: F811
    """small_disk("size=..."): the shelf is on a file system of its own."""
    at = tmp_path / "disk"
    at.mkdir()
    mounted = []

    def mount(options):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", at], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"no file system may be mounted here: {done.stderr.strip()}")
        mounted.append(at)
        agent.shelf = at / "shelf"
        agent.env["TRAINAGENT_SHELF"] = str(agent.shelf)
        return at
    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", path], check=True)


class Lowest:
    """The least that was free on a file system while it was watched."""

    def __init__(self, path):
        self.path, self.ended = path, threading.Event()
        self.bytes = self.inodes = 1 << 60
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def look(self):
        fs = os.statvfs(self.path)
        self.bytes, self.inodes = min(self.bytes, fs.f_bavail * fs.f_frsize), min(self.inodes, fs.f_favail)

    def watch(self):
        while not self.ended.is_set():
            self.look()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *args):
        self.ended.set()
        self.thread.join()
        self.look()


def test_a_disk_is_not_filled(agent, mirror, small_disk):  # noqa: F811
    """3 MiB whose content is 260 MiB, on a disk of 200: it was driven to 0 bytes free."""
    disk = small_disk("size=200m")
    mirror.files["/d/bomb.tgz"] = tar_of(member("noise", NOISE), *[member(f"zeros{i}", bytes(32 * MIB)) for i in range(8)])
    with Lowest(disk) as lowest:
        agent("pull", "d/bomb.tgz", "--unpack", code=73)
    assert "disk" in agent.err and "trainagent gc" in agent.err, agent.err
    assert list(agent.shelf.glob("trees/*")) == []
    assert lowest.bytes >= 200 * MIB // 20 - MIB, lowest.bytes


def test_inodes_are_not_used_up(agent, mirror, small_disk):  # noqa: F811
    disk = small_disk("size=200m,nr_inodes=4000")
    mirror.files["/d/many.tgz"] = tar_of(*[member(f"{i:06d}/{j}", b"") for i in range(60) for j in range(100)])
    with Lowest(disk) as lowest:
        agent("pull", "d/many.tgz", "--unpack", code=73)
    assert "inodes" in agent.err, agent.err
    assert list(agent.shelf.glob("trees/*")) == []
    assert lowest.inodes > 0


def test_what_fits_is_unpacked(agent, mirror, small_disk):  # noqa: F811
    small_disk("size=200m")
    mirror.files["/d/good.tgz"] = tar_of(member("noise", NOISE), *[member(f"zeros{i}", bytes(32 * MIB)) for i in range(5)])
    tree = Path(agent("pull", "d/good.tgz", "--unpack").strip())
    assert (tree / "noise").read_bytes() == NOISE and (tree / "zeros4").stat().st_size == 32 * MIB


def test_a_disk_that_is_full_already(agent, mirror, small_disk):  # noqa: F811
    disk = small_disk("size=40m")
    mirror.files["/d/a.tgz"] = tar_of(member("a", b"a"))
    agent("pull", "d/a.tgz")
    (disk / "ballast").write_bytes(bytes(39 * MIB - 200000))
    agent("pull", "d/a.tgz", "--unpack", code=73)
    assert "is full" in agent.err, agent.err


def test_a_hundred_times_its_size(agent, mirror):  # noqa: F811
    """Whatever room there is. Below 64 MiB the ratio does not matter."""
    mirror.files["/d/bomb.tgz"] = tar_of(member("noise", NOISE[:MIB]), *[member(f"zeros{i}", bytes(32 * MIB)) for i in range(5)])
    agent("pull", "d/bomb.tgz", "--unpack", code=65)
    assert "100 times its size" in agent.err and "without unpack" in agent.err, agent.err
    mirror.files["/d/small.tgz"] = tar_of(member("zeros", bytes(60 * MIB)))
    assert (Path(agent("pull", "d/small.tgz", "--unpack").strip()) / "zeros").stat().st_size == 60 * MIB


def test_a_sparse_file_counts_as_what_it_says(agent, mirror, tmp_path):  # noqa: F811
    """GNU tar's map of holes: an archive of some KiB that says 300 GiB."""
    (tmp_path / "holes").write_bytes(b"x")
    os.truncate(tmp_path / "holes", 300 << 30)
    subprocess.run(["tar", "-C", tmp_path, "--sparse", "-cf", tmp_path / "sparse.tar", "holes"], check=True)
    mirror.files["/d/sparse.tar"] = (tmp_path / "sparse.tar").read_bytes()
    agent("pull", "d/sparse.tar", "--unpack", code=65)
    assert "unpacks to more than" in agent.err, agent.err


def test_its_reader_is_bounded(agent, mirror):  # noqa: F811
    """Memory and processor time of the child, as the kernel has them; what is packed by bzip2 takes it a while."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:bz2") as t:
        info, data = member("noise", NOISE * 6)
        info.size = len(data)
        t.addfile(info, io.BytesIO(data))
    mirror.files["/d/slow.tbz"] = out.getvalue()
    child = agent.start("pull", "d/slow.tbz", "--unpack")
    seen = ""
    while child.poll() is None and not re.search(r"Max cpu time +\d", seen):
        for reader in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split() if child.poll() is None else []:
            try:
                seen = Path(f"/proc/{reader}/limits").read_text()
            except OSError:
                pass
    assert child.wait() == 0, child.stderr.read()
    limits = {line[:26].strip(): line[26:].split()[0] for line in seen.splitlines()[1:]}
    assert 600 <= int(limits["Max cpu time"]) <= 800, limits
    if not os.environ.get("ASAN_OPTIONS") and not os.environ.get("TSAN_OPTIONS"):
        assert int(limits["Max address space"]) < 8 << 30, limits
