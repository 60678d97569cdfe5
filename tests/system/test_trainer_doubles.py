"""The trainer on a GPU and NCCL that the host plays (tests/simt): comm_nccl.c and dev.c as they are, with faults to order."""
import json
import os
import subprocess

import pytest

from harness.mirrord import BUILD, free_port, is_free

TRAINER = BUILD / "simt/trainer"
SHAPE = '{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 256, "n_positions": 16}'

pytestmark = pytest.mark.skipif(not TRAINER.exists(), reason="sanitizers do not understand threads that are fibers")


@pytest.fixture
def data(tmp_path):
    (tmp_path / "shape.json").write_text(SHAPE)
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(5000)))
    subprocess.run([TRAINER, "tokenize", "--out", tmp_path / "data.bin", tmp_path / "text"], check=True, capture_output=True)
    return tmp_path


def two_free_ports():
    """The second is where ranks meet. No other worker gives them away, and the kernel gives them to no connection."""
    while not is_free((port := free_port()) + 1):
        pass
    return port


def run_ranks(data, *more, n=2, out="out", timeout=600, **env):
    """n ranks to their ends: their exit codes, and what they said."""
    port = two_free_ports()
    argv = [TRAINER, "train", "--config", data / "shape.json", "--data", data / "data.bin", "--out", data / out, "--device", "cuda",
            "--batch", "2", "--log-every", "1", "--comm-timeout", str(timeout), *more]
    ranks = []
    for rank in range(n):
        ranks.append(subprocess.Popen([str(a) for a in argv], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={
            **os.environ, "OMP_NUM_THREADS": "1", "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": str(port), "XDG_CACHE_HOME": str(data / "cache"),
            **env}))
    try:
        said = [r.communicate(timeout=400)[1] for r in ranks]
    finally:
        for r in ranks:
            r.kill()
    return [r.returncode for r in ranks], said


def losses(data, out):
    return [json.loads(line)["loss"] for line in (data / out / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]


def record(data, rank, out="out"):
    head, *entries = [json.loads(line) for line in (data / out / f"flight-{rank}.json").read_text().splitlines()]
    return head, entries


def test_two_ranks_train_whatever_order_the_streams_run_in(data):
    runs = {}
    for seed in (None, "1", "2", "3"):
        codes, said = run_ranks(data, "--steps", 4, out=f"out-{seed}", timeout=600, **({"SIMT_SEED": seed} if seed else {}))
        assert codes == [0, 0], said
        runs[seed] = losses(data, f"out-{seed}")
        assert not list((data / f"out-{seed}").glob("flight-*"))
    assert len(runs[None]) == 4 and all(r == runs[None] for r in runs.values()), runs
    codes, alone = run_ranks(data, "--steps", 4, "--batch", 4, n=1, out="alone", timeout=600)
    assert codes == [0] and losses(data, "alone") == pytest.approx(runs[None], rel=1e-4), (alone, runs)
    assert 'facts="NCCL 2.28.9, network Socket, via P2P/CUMEM, 24 channels, NVLS 16"' in said[0]


def test_compressed_gradients_too(data):
    """Their products are on the stream of collectives, beside the backward pass; all ranks take the first one's algorithms."""
    runs = {}
    for seed in (None, "1", "2"):
        codes, said = run_ranks(data, "--steps", 4, "--compress", "powersgd:1", "--compress-start", 1, out=f"out-{seed}", timeout=600,
                                **({"SIMT_SEED": seed} if seed else {}))
        assert codes == [0, 0], said
        runs[seed] = losses(data, f"out-{seed}")
    assert all(r == runs[None] for r in runs.values()), runs
    codes, said = run_ranks(data, "--steps", 4, out="whole", timeout=600)
    assert codes == [0, 0] and losses(data, "whole")[:2] == runs[None][:2] and losses(data, "whole")[2:] != runs[None][2:], (runs, said)


def test_a_compressed_run_goes_on_to_the_same_bits(data):
    """With the algorithms of both streams' products, which the checkpoint has."""
    how = ["--steps", 6, "--deterministic", "--compress", "powersgd:1", "--compress-start", 1]
    for out, *more in (["whole"], ["parts", "--stop-at", 3], ["parts", "--resume", "auto"]):
        codes, said = run_ranks(data, *how, *more, out=out, timeout=600)
        assert codes == [0, 0] and "is dropped" not in said[0], said
    whole, parts = (data / out / "checkpoint-6" for out in ("whole", "parts"))
    names = sorted(p.name for p in whole.glob("*.safetensors"))
    assert "powersgd-00002-of-00002.safetensors" in names
    assert all((whole / n).read_bytes() == (parts / n).read_bytes() for n in names)


def test_sums_of_bf16_too(data):
    codes, said = run_ranks(data, "--steps", 4, "--reduce-dtype", "bf16", "--zero", 2, timeout=600)
    assert codes == [0, 0], said
    codes, said = run_ranks(data, "--steps", 4, out="wide", timeout=600)
    assert codes == [0, 0] and losses(data, "wide") == pytest.approx(losses(data, "out"), rel=1e-3) and losses(data, "wide") != losses(data, "out")


def test_calls_that_take_their_time(data):
    """A call of a communicator that does not block may be under way after it has returned."""
    codes, said = run_ranks(data, "--steps", 2, timeout=600, FAKE_NCCL="inprogress=5")
    assert codes == [0, 0], said


STUCK = "all ranks are at the same point: allreduce"


@pytest.mark.parametrize("nccl,cuda,codes,suspects,why", [  # "never" and "hang" are found by the timeout, the others at once
    ("1.async=6;at=25", "", [75, 75], None, "remote process exited or there was a network error: NET/IB : Got completion from peer"),
    ("1.never=1;at=25", "", [75, 75], [], STUCK),
    ("never=1;at=25;abort=1", "", [75, 75], [], STUCK),
    ("1.hang=1;at=25", "", [75, 75], [1], "rank 1 has not returned from the call of allreduce 25: "),
    ("never=1;at=2", "", [75, 75], None, "allreduce 2 (f32, 16384 elements, nccl) on rank "),  # before the ranks can ask each other
    ("1.kill=1;at=25", "", [75, -9], [1], "rank 1 has died"),
    ("0.kill=1;at=25", "", [-9, 75], [0], "rank 0 has died"),
    ("", "1.illegal=150", [75, 75], [1], "cudaErrorIllegalAddress"),
], ids=["async error", "never", "abort hangs", "call hangs", "first collectives", "peer dies", "rank 0 dies", "sick gpu"])
def test_faults_end_all_ranks_with_75_and_a_flight_record(data, nccl, cuda, codes, suspects, why):
    timeout = 5 if "never" in nccl or "hang" in nccl else 600
    ended, said = run_ranks(data, "--steps", 1000, timeout=timeout, FAKE_NCCL=nccl, FAKE_CUDA=cuda)
    assert ended == codes, said
    for rank in (r for r in (0, 1) if codes[r] == 75):
        head, entries = record(data, rank)
        assert why in head["why"] and head["exit"] == 75 and (suspects is None or head["suspects"] == suspects), head
        assert why in said[rank] and "flight record:" in said[rank]
        if "at=25" in nccl and head["waits_for"]:
            assert head["waits_for"]["comm"] == "nccl" and head["waits_for"]["op"] == "allreduce"
            assert 1 <= head["waits_for"]["seq"] <= 25 and head["posted"] == entries[-1]["seq"]
    assert not list(data.glob("out/*.part")) and not list(data.glob("out/checkpoint-*"))


@pytest.mark.parametrize("victim", [0, 1])
def test_broken_memory_of_a_gpu(data, victim):
    """Its rank ends with 71, which takes its node out of the job, and the other one with 75."""
    ended, said = run_ranks(data, "--steps", 1000, FAKE_CUDA=f"{victim}.ecc=150")
    assert ended == [71 if rank == victim else 75 for rank in (0, 1)], said
    for rank in (0, 1):
        head, _ = record(data, rank)
        assert head["exit"] == ended[rank] and head["suspects"] == [victim], head
        assert "cudaErrorECCUncorrectable" in head["why"] and f"(rank {victim}, GPU 0000:1{victim}:00.0)" in head["why"], head


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_broken_memory_of_a_gpu_at_the_start(data, device):
    """Nor does it go on without the GPU."""
    [code], [said] = run_ranks(data, "--steps", 1, "--device", device, n=1, FAKE_CUDA="ecc=1")
    assert code == 71 and f"--device {device}: CUDA: cudaErrorECCUncorrectable (214)" in said, said


@pytest.mark.parametrize("nccl,code,why", [
    ("init=2", 75, "unhandled system error (run with NCCL_DEBUG=INFO for details): Bootstrap : no socket interface found"),
    ("init=5", 78, "invalid usage"),
    ("initnever=1", 75, "the ranks did not connect in time"),
], ids=["fails", "cannot be", "never ready"])
def test_ranks_that_cannot_connect(data, nccl, code, why):
    ended, said = run_ranks(data, "--steps", 2, timeout=2 if "initnever" in nccl else 600, FAKE_NCCL=nccl)
    assert ended == [code, code] and all(why in text for text in said), said
    for rank in (0, 1) if code == 75 else ():
        head, entries = record(data, rank)
        assert why in head["why"] and head["suspects"] == (None if "initnever" in nccl else [rank]) and entries == [], head


def batch_that_fits(said):
    assert "; use --batch " in said[0], said
    return int(said[0].split("--batch ")[1].split()[0])


def test_what_nccl_takes_is_planned_for(data):
    fits = {}
    for taken in (0, 4 << 20):
        codes, said = run_ranks(data, "--steps", 1, "--batch", 100000, FAKE_NCCL=f"memory={taken}", FAKE_CUDA=f"memory={536 << 20}")
        assert codes == [73, 73], said
        fits[taken] = batch_that_fits(said)
    assert 0 < fits[4 << 20] < fits[0], fits


def test_bench_of_sums_ends_when_a_rank_hangs(data):
    """Preflight asks: a group that hangs must not hang it."""
    port = two_free_ports()
    argv = [TRAINER, "bench", "--comm", "--device", "cuda", "--comm-timeout", "5"]  # the other one may begin seconds later
    ranks = [subprocess.Popen(argv, cwd=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={
        **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "FAKE_NCCL": "1.never=1;at=20"}) for rank in (0, 1)]
    try:
        said = [r.communicate(timeout=400) for r in ranks]
    finally:
        for r in ranks:
            r.kill()
    assert [r.returncode for r in ranks] == [75, 75], said
    assert "2 ranks over nccl" in said[0][0] and "NVLS 16" in said[0][0] and "all ranks are at the same point" in said[0][1], said
