"""A disk that is full, really full: hits go on, what was published stays, and room makes everything well again."""
import contextlib
import os
import re
import subprocess

import pytest

from harness.mirrord import BUILD, until

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 96 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    where = tmp_path / "disk"
    where.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", where], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {done.stderr.strip()}")
    yield where
    subprocess.run(["umount", "-l", where], check=True)


def fill_up(disk):
    with open(disk / "ballast", "wb") as f:
        try:
            while True:
                f.write(bytes(65536))
                f.flush()
        except OSError:
            pass


def test_a_full_disk_loses_nothing(mirrord, origin, small_disk):
    m = mirrord(f"""storage {{ quota = "1g" reserve = "1m" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}
        repo "models" {{ protocol = "hosted" }}""", state=small_disk / "state")
    token = m.token("ci", "publish:models/*")
    kept = os.urandom(2 * MIB)
    assert m.put("/models/me/x/kept", kept, token=token).status in (200, 201, 204)
    origin.put("/warm", size=4 * MIB)
    origin.put("/large", size=40 * MIB)
    warm = m.get("/data/warm").body
    m.ctl("cache", "pin", "data/warm")  # the reserve is kept by eviction, whoever filled the disk: what must stay is pinned
    fill_up(small_disk)

    assert m.get("/data/warm").body == warm
    assert m.get("/models/me/x/kept").body == kept
    cold = m.get("/data/large")
    assert cold.status >= 500 or not cold.whole or cold.body == origin.bytes_of("/large")
    upload = m.put("/models/me/x/new", os.urandom(8 * MIB), token=token)
    assert upload.status in (500, 503, 507)
    assert m.get("/data/warm").body == warm and m.alive()

    (small_disk / "ballast").unlink()
    def comes():
        again = m.get("/data/large")
        return again.whole and again.status == 200 and again.body == origin.bytes_of("/large")
    until(comes)
    assert m.put("/models/me/x/new", b"new", token=token).status in (200, 201, 204)
    assert m.ctl("verify").returncode == 0


def test_room_is_made_for_a_stranger(mirrord, origin, small_disk):
    """Somebody else fills the disk: the reserve comes back at the cache's cost, and what cannot be kept is refused clearly."""
    m = mirrord(f"""storage {{ quota = "1g" reserve = "16m" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}""", state=small_disk / "state")
    for i in range(6):
        origin.put(f"/{i}", size=4 * MIB, seed=i + 1)
        m.get(f"/data/{i}")
    fill_up(small_disk)
    m.reaches("mirrord_cache_evicted_bytes_total", 16 * MIB)
    for i in range(6):
        again = m.get(f"/data/{i}")
        assert again.status in (503, 507) and b"do not fit" in again.body or again.body == origin.bytes_of(f"/{i}")
    assert m.ctl("verify").returncode == 0


def test_killed_while_full(mirrord, origin, small_disk):
    m = mirrord(f"""storage {{ quota = "1g" reserve = "1m" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}""", state=small_disk / "state")
    origin.put("/warm", size=4 * MIB)
    warm = m.get("/data/warm").body
    fill_up(small_disk)
    m.get("/data/none")
    m.kill()
    (small_disk / "ballast").unlink()
    m.start()
    assert m.get("/data/warm").body == warm
    assert m.ctl("verify").returncode == 0


def held_bytes(m):
    """Of its files; some go while we look."""
    total = 0
    for f in (m.state / "blobs").rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += f.stat().st_size if f.is_file() else 0
    return total


def test_a_quota_is_kept_by_forgetting_the_oldest(mirrord, origin):
    m = mirrord(f"""storage {{ quota = "64m" reserve = "16m" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}""")
    for i in range(24):
        origin.put(f"/{i}", size=8 * MIB, seed=i + 1)
        assert m.get(f"/data/{i}").body == origin.bytes_of(f"/{i}")
    until(lambda: held_bytes(m) <= 72 * MIB)
    assert m.get("/data/0").body == origin.bytes_of("/0")
    assert m.ctl("verify").returncode == 0


def test_what_is_pinned_stays(mirrord, origin):
    m = mirrord(f"""storage {{ quota = "64m" reserve = "16m" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}""")
    thing = origin.put("/keep/me", size=8 * MIB)
    m.get("/data/keep/me")
    m.ctl("cache", "pin", "data/keep/")
    for i in range(16):
        origin.put(f"/{i}", size=8 * MIB, seed=i + 1)
        m.get(f"/data/{i}")
    assert m.get("/data/keep/me").body == origin.bytes_of("/keep/me") and thing.bytes == 8 * MIB


def test_a_training_run_on_a_full_disk(small_disk, tmp_path):
    """Checkpoints fail, the run goes on, its end says why; what was whole stays whole, and room lets it go on."""
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(9000)))
    trainer = BUILD / "trainer"
    subprocess.run([trainer, "tokenize", "--out", tmp_path / "data.bin", tmp_path / "text"], check=True, capture_output=True)

    def train(steps):
        words = [trainer, "train", "--config", "demo", "--data", tmp_path / "data.bin", "--out", small_disk / "run", "--device",
                 "cpu", "--seq", 16, "--batch", 1, "--steps", steps, "--save-every", 2, "--resume", "auto"]
        return subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)

    assert train(2).returncode == 0
    fill_up(small_disk)
    full = train(6)
    assert full.returncode == 73 and "No space left" in full.stderr, full.stderr
    assert [p.name for p in (small_disk / "run").glob("checkpoint-*")] == ["checkpoint-2"]
    (small_disk / "ballast").unlink()
    assert train(6).returncode == 0
    subprocess.run([trainer, "info", small_disk / "run/checkpoint-6"], check=True, capture_output=True)


@pytest.mark.parametrize("quota", ['quota = "1g"', ""])
def test_a_file_system_that_others_fill_is_named(mirrord, small_disk, quota):
    """It said that 4 MiB of 0 B are used, and to raise a quota that ends nothing."""
    m = mirrord(f"""storage {{ {quota} reserve = "8m" }}\nrepo "models" {{ protocol = "hosted" }}""", state=small_disk / "state")
    token = m.token("ci", "publish:models/*")
    assert m.put("/models/me/x/kept", os.urandom(4 * MIB), token=token).status in (200, 201, 204)
    assert m.ctl("status").returncode == 0
    free = os.statvfs(small_disk)
    with open(small_disk / "strangers", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, free.f_bavail * free.f_frsize - 4 * MIB)
    until(lambda: m.ctl("status", check=False).returncode == 1)
    trouble, todo, *_ = m.ctl("status", check=False).stdout.splitlines()
    assert re.match(r"TROUBLE the file system of the store is nearly full: [\d.]+ \w+ are free, the store uses 4\.\d+ MiB", trouble), trouble
    assert "free space there" in todo and "raise" not in todo
    until(lambda: "evict.failed" in m.log())
    (small_disk / "strangers").unlink()
    until(lambda: m.ctl("status", check=False).returncode == 0)
    failed = re.findall(r"evict\.failed.*", m.log())
    assert len(failed) == 1 and "storage.reserve keeps 8.00 MiB" in failed[0], failed


RESERVE = r"[\d.]+ MiB free and storage\.reserve keeps 200 MiB"


def cramped(mirrord, origin, small_disk):
    """The disk has less free space than the reserve: it leaves room for nothing."""
    return mirrord(f"""storage {{ reserve = "200m" }}
        repo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ class = immutable }} }}
        repo "models" {{ protocol = "hosted" }}""", state=small_disk / "state")


def test_a_reserve_above_the_free_space_is_named_to_clients(mirrord, origin, small_disk):
    """Clients heard to raise storage.quota, which would change nothing."""
    m = cramped(mirrord, origin, small_disk)
    token = m.token("ci", "publish:models/*")
    origin.put("/known", size=MIB)
    origin.put("/chunked", size=MIB, chunked=True)
    answers = [m.get("/data/known"), m.get("/data/known", headers={"Range": "bytes=0-99"}), m.get("/data/chunked"),
               m.put("/models/me/x/new", bytes(MIB), token=token)]
    for got in answers:
        assert got.status == 507 and re.search(RESERVE.encode(), got.body), got
        assert b"lower storage.reserve" in got.body and b"raise" not in got.body, got.body


def test_a_reserve_above_the_free_space_is_named_to_operators(mirrord, origin, small_disk):
    """By the start's log, by tests and reloads of the configuration, and first of all by status; a mirror that serves hits is ready."""
    m = cramped(mirrord, origin, small_disk)
    assert re.search(f"config.notice .*{RESERVE}", m.log()), m.log()
    assert re.search(f"warning: .*{RESERVE}", m.ctl("-c", m.conf, "config", "test").stderr)
    alone = subprocess.run([BUILD / "mirrord", "-t", "-c", m.conf], capture_output=True, text=True, check=True)
    assert re.search(rf"mirrord\.conf:\d+: warning: .*{RESERVE}", alone.stderr), alone.stderr
    status = m.ctl("status", check=False)
    assert status.returncode == 1
    assert re.match(rf"TROUBLE the store has no room: its file system has {RESERVE}", status.stdout), status.stdout
    ready = m.get("/readyz")
    assert ready.status == 200 and ready.body.startswith(b"ready\n") and b"mirrorctl status" in ready.body
    assert m.metric("mirrord_cache_quota_bytes") == 0 and m.metric("mirrord_disk_reserve_bytes") == 200 * MIB

    m.conf.write_text(m.conf.read_text().replace('reserve = "200m"', 'reserve = "1m"'))
    done = m.ctl("config", "reload")
    assert "reserve" not in done.stderr and m.ctl("status").returncode == 0
    assert m.get("/readyz").body == b"ready\n"
