"""Ranks that die, stop or err: the others end with 75, and their flight records name the rank. Recovery is a restart."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from harness.mirrord import BUILD
from harness.ranks import mpirun

SHAPE = '{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 256, "n_positions": 16}'
TIMEOUT = 5  # seconds: long enough for a busy machine's step, whose verdict is the same anyway

needs_mpi = pytest.mark.skipif(not shutil.which("mpirun") or not (BUILD / "trainer-mpi.so").exists(), reason="no Open MPI here")


@pytest.fixture
def data(tmp_path):
    (tmp_path / "shape.json").write_text(SHAPE)
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(5000)))
    subprocess.run([BUILD / "trainer", "tokenize", "--out", tmp_path / "data.bin", tmp_path / "text"], check=True, capture_output=True)
    return tmp_path


def train(data, *more, steps=1000000):
    return [BUILD / "trainer", "train", "--config", data / "shape.json", "--data", data / "data.bin", "--out", data / "out", "--device",
            "cpu", "--steps", steps, "--batch", 2, "--log-every", 1, "--comm-timeout", TIMEOUT, *more]


def steps_done(data):
    """The last step that metrics.jsonl knows of."""
    try:
        lines = (data / "out/metrics.jsonl").read_text().splitlines()
    except OSError:
        return 0
    return json.loads(lines[-1])["step"] if lines and lines[-1].endswith("}") else 0


def record(data, rank):
    """A flight record: its head and its entries; every line is whole."""
    text = (data / f"out/flight-{rank}.json").read_text()
    assert text.endswith("\n")
    head, *entries = [json.loads(line) for line in text.splitlines()]
    assert head["rank"] == rank and [e["seq"] for e in entries] == list(range(entries[0]["seq"], entries[0]["seq"] + len(entries)))
    return head, entries


@pytest.fixture
def four(data):
    started = []

    def start(*more):
        # When one has ended mpirun kills the others after a second: on a busy machine they are not all done with their records by then.
        started.append(mpirun(4, train(data, *more), data / "log", OMPI_MCA_odls_base_sigkill_timeout="5"))
        started[-1].until(lambda: steps_done(data) >= 3, "a few steps")
        return started[-1]

    yield start
    for ranks in started:
        ranks.close()


@needs_mpi
@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_stops_is_named_and_the_others_end_with_75(four, data, victim):
    ranks = four()
    os.kill(ranks.pid(victim), signal.SIGSTOP)
    assert ranks.wait() == 75, ranks.said
    for rank in {0, 1, 2, 3} - {victim}:
        head, entries = record(data, rank)
        assert head["suspects"] == [victim] and head["exit"] == 75 and head["world"] == 4, head
        assert f"rank {victim} does not respond" in head["why"]
        waits = head["waits_for"]
        assert waits["comm"] == "mpi" and waits["op"] == "allreduce" and waits["seq"] == head["posted"] == head["done"] + 1
        assert entries[-1]["seq"] == waits["seq"] and entries[-1]["done_unix_ms"] is None
        assert all(e["done_unix_ms"] for e in entries[:-1])
    assert not list((data / "out").glob("*.part"))
    assert f"rank {victim} does not respond" in ranks.said


def one_rank_fails(data, rank, order, *more, steps=1000000):
    """Ranks of which one has disk calls that fail as crash/failer.c reads it from FAIL_FILE."""
    setup = (f'if [ "$OMPI_COMM_WORLD_RANK" = {rank} ]; then export LD_PRELOAD={BUILD}/crash/failer.so FAIL_FILE={data}/order; fi; '
             'exec "$@"')
    (data / "order").write_text(order)
    return ["sh", "-c", setup, "sh", *train(data, *more, steps=steps)]


@needs_mpi
def test_try_again_of_one_rank_alone_ends_all(data):
    """Only a stop that all have agreed on ends a rank without a word to the others."""
    ranks = mpirun(2, one_rank_fails(data, 0, "11 on open metrics.jsonl", steps=200), data / "log")
    try:
        assert ranks.wait() == 75, ranks.said
    finally:
        ranks.close()
    assert "rank 1 of 2: rank 0 has exited: " in ranks.said and "metrics.jsonl: Resource temporarily unavailable" in ranks.said


@needs_mpi
def test_a_slow_last_checkpoint_is_waited_for(data):
    """Longer than a collective may take (three timeouts), shorter than a disk may hang (six)."""
    ranks = mpirun(2, one_rank_fails(data, 0, "0 on write model.safetensors", steps=2), data / "log")
    try:
        ranks.until(lambda: list((data / "out").glob("checkpoint-2.*.partial")), "the checkpoint")
        time.sleep(3.6 * TIMEOUT)
        (data / "order").unlink()
        assert ranks.wait() == 0, ranks.said
    finally:
        ranks.close()
    assert (data / "out/checkpoint-2/manifest.sha256").exists()


@needs_mpi
@pytest.mark.parametrize("n", [2, 3])
def test_bench_of_sums(tmp_path, n):
    ranks = mpirun(n, [BUILD / "trainer", "bench", "--comm", "--device", "cpu", "--json"], tmp_path / "log")
    try:
        assert ranks.wait() == 0, ranks.said
    finally:
        ranks.close()
    said = json.loads(next(line for line in ranks.said.splitlines() if line.startswith("{")))
    assert said["comm"] == "mpi" and said["ranks"] == n and [r["bytes"] for r in said["rows"]] == [1024 * 4**i for i in range(8)]
    for row in said["rows"]:
        assert row["us"] > 0 and row["bus_gb_per_s"] == pytest.approx(row["gb_per_s"] * 2 * (n - 1) / n, rel=1e-3)


def test_bench_of_sums_alone():
    run = subprocess.run([BUILD / "trainer", "bench", "--comm", "--device", "cpu"], capture_output=True, text=True, check=True)
    assert "1 rank over self" in run.stdout and "16.0 MiB" in run.stdout
