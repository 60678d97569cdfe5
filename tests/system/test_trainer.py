"""The trainer as a whole program: what it says about what it made."""
import fcntl
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess

import pytest

from harness.checkpoint import digests, model, moments
from harness.mirrord import BUILD, SLOW, until
from harness.ranks import mpirun_each, mpirun_start

SHAPE = '{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 256, "n_positions": 16}'


def trainer(*args, code=0):
    run = subprocess.run([BUILD / "trainer", *map(str, args)], env=dict(os.environ, OMP_NUM_THREADS="1"), text=True,
                         capture_output=True, check=False)
    assert run.returncode == code, run.stderr
    return run.stdout if code == 0 else run.stderr


@pytest.fixture
def out(tmp_path):
    """What a run leaves: checkpoint-2, checkpoint-4 and checkpoint-10."""
    (tmp_path / "shape.json").write_text(SHAPE)
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(5000)))
    trainer("tokenize", "--out", tmp_path / "data.bin", tmp_path / "text")
    for steps in (4, 10):
        trainer("train", "--config", tmp_path / "shape.json", "--data", tmp_path / "data.bin", "--out", tmp_path / "out", "--device",
                "cpu", "--steps", steps, "--batch", 2, "--save-every", 2 if steps == 4 else 10, "--keep", 9, "--resume", "auto")
    return tmp_path / "out"


def test_info_of_a_runs_folder_is_its_newest_checkpoint(out):
    said = json.loads(trainer("info", out, "--json").splitlines()[-1])
    assert said["step"] == 10 and said["verified"] and said["checkpoint"] == f"{out}/checkpoint-10"
    assert f"{out}/checkpoint-10, the newest of 3" in trainer("info", out)
    direct = json.loads(trainer("info", out / "checkpoint-4", "--json").splitlines()[-1])
    assert direct["step"] == 4 and "checkpoint" not in direct
    with open(out / "checkpoint-10/model.safetensors", "ab") as f:  # damaged: the next one, and a word about it
        f.write(b"x")
    run = subprocess.run([BUILD / "trainer", "info", out, "--json"], text=True, capture_output=True, check=True)
    assert json.loads(run.stdout.splitlines()[-1])["step"] == 4 and "checkpoint-10" in run.stderr


def test_info_of_what_is_nothing(tmp_path):
    says = f"{tmp_path}: holds neither a model (config.json), nor checkpoint-<step> folders, nor token shards (*.bin)"
    assert says in trainer("info", tmp_path, code=66)


def test_info_of_a_folder_of_shards(tmp_path):
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(5000)))
    trainer("tokenize", "--out", tmp_path / "corpus", tmp_path / "text")
    names = sorted(p.name for p in (tmp_path / "corpus").glob("*.bin"))
    said = json.loads(trainer("info", tmp_path / "corpus", "--json").splitlines()[-1])
    assert [s["name"] for s in said["shards"]] == names and names
    assert said["tokens"] == sum(s["tokens"] for s in said["shards"]) > 4000
    assert all(s["verified"] for s in said["shards"])
    assert f"{len(names)} shards, {said['tokens']} tokens" in trainer("info", tmp_path / "corpus")
    with open(tmp_path / "corpus" / names[0], "r+b") as f:
        f.seek(-1, os.SEEK_END)
        f.write(b"\xff")
    assert names[0] in trainer("info", tmp_path / "corpus", code=65)


def test_a_model_may_be_a_runs_folder(out, tmp_path):
    """What `info` takes, the others take: its newest checkpoint that is whole."""
    of = ("--data", tmp_path / "data.bin", "--device", "cpu", "--batch", 2, "--json")
    assert trainer("eval", "--model", out, *of) == trainer("eval", "--model", out / "checkpoint-10", *of)
    assert "none/config.json" in trainer("eval", "--model", tmp_path / "none", *of, code=66)
    trainer("train", "--model", out, "--data", tmp_path / "data.bin", "--out", tmp_path / "next", "--device", "cpu", "--steps", 1,
            "--batch", 2)
    assert (tmp_path / "next/checkpoint-1").is_dir()


def test_a_run_that_is_done_says_so(out):
    def resumed(steps):
        return subprocess.run([BUILD / "trainer", "train", "--data", out.parent / "data.bin", "--out", out, "--device", "cpu", "--resume",
                               "auto", "--steps", str(steps)], text=True, capture_output=True, check=True).stderr
    for steps in (10, 3):
        assert f"step 10 is already done and --steps is {steps}: nothing to do" in resumed(steps)
    assert "nothing to do" not in resumed(11)


def test_a_resumed_run_says_what_other_options_do_to_its_schedule(tmp_path):
    (tmp_path / "shape.json").write_text(SHAPE)
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(5000)))
    trainer("tokenize", "--out", tmp_path / "data.bin", tmp_path / "text")  # 312 windows of 16

    def resumed(*options):
        """The sentence of a resumed run, None without one; and its next step."""
        run = subprocess.run([BUILD / "trainer", "train", "--config", tmp_path / "shape.json", "--data", tmp_path / "data.bin", "--out",
                              tmp_path / "out", "--device", "cpu", "--resume", "auto", "--lr", "0.01", *map(str, options)],
                             env=dict(os.environ, OMP_NUM_THREADS="1"), text=True, capture_output=True, check=True)
        said = [line for line in run.stderr.splitlines() if line.startswith("resumed with ")]
        steps = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
        return said[0] if said else None, steps[-1]

    assert resumed("--steps", 10, "--batch", 2, "--stop-at", 3)[0] is None
    assert resumed("--steps", 10, "--batch", 2, "--stop-at", 4)[0] is None
    said, step = resumed("--steps", 20, "--batch", 2, "--stop-at", 5)
    assert said.startswith("resumed with --steps 20 (was 10), --warmup 1 (was 0): the learning rate of the next step is "), said
    assert f" {step['lr']:.4g} (was to be " in said and "and ends at 0.001 after step 20 (was 0.001 after 10)" in said, said
    assert "tokens" not in said and "sample" not in said
    said, step = resumed("--steps", 20, "--batch", 4, "--accum", 2, "--stop-at", 6)
    assert said == ("resumed with --batch 4 (was 2), --accum 2 (was 1): a step takes 128 tokens (was 32), and the run ends after 2080 (was to "
                    "end after 640); the data continues at sample 11 of 312 in epoch 1, and no sample is skipped or repeated"), said
    assert step["tokens"] == 5 * 32 + 128
    said, _ = resumed("--steps", 20, "--batch", 8, "--accum", 1, "--stop-at", 7)
    assert said.startswith("resumed with --batch 8 (was 4), --accum 1 (was 2): a step takes 128 tokens as before; the data "), said


def test_a_checkpoint_is_chosen_by_whoever_holds_the_folder(out, tmp_path):
    """Another run writes and removes checkpoints there: what is found damaged now may not be in a moment."""
    for i in (2, 4, 10):
        (out / f"checkpoint-{i}/trainer.json").unlink()
    held = os.open(out, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    again = ("train", "--config", tmp_path / "shape.json", "--data", tmp_path / "data.bin", "--out", out, "--device", "cpu",
             "--steps", 12, "--batch", 2, "--resume", "auto")
    said = trainer(*again, code=75)
    assert f"another trainer is writing to {out}" in said and "damaged" not in said, said
    os.close(held)
    assert "every checkpoint is damaged" in trainer(*again, code=66)


def test_without_data_there_is_no_out(tmp_path):
    (tmp_path / "shape.json").write_text(SHAPE)
    assert "none.bin" in trainer("train", "--config", tmp_path / "shape.json", "--data", tmp_path / "none.bin", "--out",
                                 tmp_path / "out", "--device", "cpu", "--steps", 1, code=66)
    assert not (tmp_path / "out").exists()


TABLES = {
    "gemm": {f"{layer} {way}" for layer in ("qkv", "proj", "fc", "out", "head") for way in ("forward", "dgrad", "wgrad")},
    "copy": {"copy"},
    "attention": {"attention forward", "attention backward"},
    "memory-bound": {"norm forward", "norm backward", "cross-entropy", "embedding forward", "embedding backward",
                     "gradient norm", "adamw"},
}


@pytest.mark.parametrize("shape,dtype,more", [("tiny-gpt2", "f32", {"bias backward"}),
                                              ("tiny-llama", "bf16", {"rope", "swiglu forward", "swiglu backward"})])
def test_bench_times_every_operation_and_whole_steps(shape, dtype, more):
    args = ("bench", "--config", shape, "--device", "cpu", "--dtype", dtype, "--batch", 2, "--seq", 8, "--steps", 2)
    said = json.loads(trainer(*args, "--json").splitlines()[-1])
    assert said["dtype"] == dtype and said["batch"] == 2 and said["seq"] == 8 and said["attention_by"] == "plain loops"
    assert said["tokens_per_s"] > 0 and said["step_ms"] > 0 and said["forward_ms"] > 0
    for table, names in TABLES.items():
        rows = [r for r in said["rows"] if r["table"] == table]
        assert {r["what"] for r in rows} == names | (more if table == "memory-bound" else set())
        rate = "tflops" if table in ("gemm", "attention") else "gb_per_s"
        assert all(r["ms"] > 0 and r[rate] > 0 for r in rows), rows
        assert all(("of_copy" in r) == (table != "gemm" and table != "attention") for r in rows)
    printed = trainer(*args, "--only", "attention,steps")
    assert "attention backward" in printed and "tokens/s" in printed and "attention kernel: plain loops" in printed
    assert "wgrad" not in printed and "norm backward" not in printed


def test_bench_refuses_what_cannot_be():
    for args, word in ((("--only", "gem"), "--only gem: gemm, copy"), (("--only", ""), "names no table"),
                       (("--batch", 1 << 62), "tokens at a time"), (("--seq", 9), "context of 8")):
        assert word in trainer("bench", "--config", "tiny-gpt2", "--device", "cpu", *args, code=64)


def test_what_cannot_be_removed_costs_no_checkpoint(out, tmp_path):
    """A leftover that stays where it is, as a file that another has open does on NFS: told of, and the next ones are written."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "checkpoint-1.partial").write_text("no folder")
    done = subprocess.run([BUILD / "trainer", "train", "--config", tmp_path / "shape.json", "--data", tmp_path / "data.bin", "--out", other,
                           "--device", "cpu", "--steps", "6", "--batch", "2", "--save-every", "2", "--keep", "1"],
                          env=dict(os.environ, OMP_NUM_THREADS="1"), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "checkpoint.prune" in done.stderr and "checkpoint.failed" not in done.stderr, done.stderr
    assert sorted(p.name for p in other.glob("checkpoint-*")) == ["checkpoint-1.partial", "checkpoint-6"]


def sample(model, *args, code=0):
    return trainer("sample", "--model", model, "--device", "cpu", *args, code=code)


def test_sample_speaks_beyond_its_context(out):
    model = out / "checkpoint-10"  # a context of 16
    said = sample(model, "--prompt", "abc", "--tokens", 100, "--seed", 5)
    assert said.startswith("abc") and said == sample(model, "--prompt", "abc", "--tokens", 100, "--seed", 5)
    assert said != sample(model, "--prompt", "abc", "--tokens", 100, "--seed", 6)
    long = "x" * 40  # longer than the context
    assert sample(model, "--prompt", long, "--tokens", 3).startswith(long)
    greedy = sample(model, "--prompt", "abc", "--tokens", 30, "--temperature", 0)
    assert greedy == sample(model, "--prompt", "abc", "--tokens", 30, "--temperature", 0, "--seed", 9)
    assert greedy == sample(model, "--prompt", "abc", "--tokens", 30, "--top-p", "1e-9", "--top-k", 0)
    assert greedy == sample(model, "--prompt", "abc", "--tokens", 30, "--top-k", 1)
    assert sample(model, "--prompt", "abc", "--tokens", 0) == "abc\n"


def test_sample_ends_at_any_of_the_tokens_that_end_a_text(out, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(out / "checkpoint-10", model)
    greedy = sample(model, "--prompt", "abc", "--tokens", 30, "--temperature", 0)
    last = next(c for c in greedy[10:-1] if c.isascii())
    config = json.loads((model / "config.json").read_text())
    config["eos_token_id"] = [100000, 0, ord(last)]
    (model / "config.json").write_text(json.dumps(config))
    assert sample(model, "--prompt", "abc", "--tokens", 30, "--temperature", 0) == greedy[:greedy.index(last, 3)] + "\n"


def test_sample_refuses_what_cannot_be(out):
    for args, word in ((("--top-p", 0), "--top-p 0"), (("--top-p", "1.5"), "--top-p 1.5"), (("--top-p", "nan"), "not a number"),
                       (("--temperature", -1), "--temperature -1"), (("--top-k", -1), "--top-k -1"),
                       (("--tokens", 1 << 60), "at most"), (("--prompt", ""), "--prompt")):
        assert word in sample(out / "checkpoint-10", *args, code=64)


def info(path, *args, code=0):
    run = subprocess.run([BUILD / "trainer", "info", path, "--json", "--device", "cpu", *map(str, args)], text=True,
                         capture_output=True, check=False)
    assert run.returncode == code, run.stderr
    return json.loads(run.stdout.splitlines()[-1]) if run.stdout else None, run.stderr


def test_info_of_a_bare_configuration(tmp_path):
    (tmp_path / "config.json").write_text(SHAPE)
    said = info(tmp_path / "config.json", "--batch", 4, "--seq", 16, "--dtype", "bf16")[0]
    assert said["parameters"] == 256 * 16 + 16 * 16 + 12 * 16 * 16 + 13 * 16 + 2 * 16 and said["layers"] == 1
    again = info(tmp_path, "--batch", 4, "--dtype", "bf16")[0]
    for now in ("free", "largest_batch"):  # of the machine at this moment
        assert said["memory"].pop(now) and again["memory"].pop(now)
    assert "tensors" not in said and not said["verified"] and said == again
    plan = said["memory"]
    assert (plan["batch"], plan["seq"], plan["dtype"], plan["device"]) == (4, 16, "bf16", "CPU")
    train = plan["train"]
    assert train["gradients"] == 2 * train["weights"] and train["optimizer"] == 6 * train["weights"]
    assert train["total"] == sum(train[k] for k in ("weights", "gradients", "optimizer", "activations"))
    assert plan["eval"]["gradients"] == 0 and plan["eval"]["activations"] < train["activations"]
    assert info(tmp_path, "--recompute", "block", "--batch", 4)[0]["memory"]["train"]["total"] > 0
    assert "context of 16" in info(tmp_path, "--seq", 17, code=64)[1]
    assert "memory at 8 x 16 tokens in f32 on CPU" in trainer("info", tmp_path, "--device", "cpu")


def test_info_tells_the_memory_of_a_rank_and_the_batch_that_fits(tmp_path):
    def plan(*args):
        said = subprocess.run([BUILD / "trainer", "info", "--config", "gpt2-124m", "--json", "--device", "cpu", "--seq", "1024",
                               *map(str, args)], text=True, capture_output=True, check=True)
        return json.loads(said.stdout.splitlines()[-1])["memory"]

    one, seven = plan("--batch", 2), plan("--batch", 2, "--ranks", 7)
    assert (one["ranks"], seven["ranks"]) == (1, 7)
    # Each rank has all of it; groups are padded, so that the ranks can share each out in pieces of 256 bytes.
    assert one["train"]["weights"] < seven["train"]["weights"] < one["train"]["weights"] + 14 * 7 * 256
    assert seven["train"]["optimizer"] == 2 * seven["train"]["weights"] and seven["train"]["activations"] == one["train"]["activations"]
    assert seven["eval"] == one["eval"]  # one process measures alone
    for kind in ("train", "eval"):
        most = one["largest_batch"][kind]
        assert plan("--batch", most)[kind]["total"] <= one["free"] < plan("--batch", most + 1)[kind]["total"], (kind, most)
    text = trainer("info", "--config", "gpt2-124m", "--device", "cpu", "--ranks", 7, "--batch", 2)
    assert "memory of each of 7 ranks with --zero 0 at 2 x 1024 tokens in f32 on CPU" in text and "largest batch in " in text
    text = trainer("info", "--config", "gpt2-124m", "--device", "cpu", "--zero", 3)
    assert "--zero 3 has no effect with one rank; give --ranks" in text and "has no effect" not in trainer("info", "--config", "gpt2-124m", "--device", "cpu")
    for more in ((), ("--tp", 2)):  # ranks that each have all of what they would share out
        text = trainer("info", "--config", "gpt2-124m", "--device", "cpu", "--ranks", 4 if not more else 2, "--zero", 3,
                       *(("--shard-group", 1) if not more else more))
        assert "ranks with --zero 0" in text and "--zero 3 has no effect in groups of one rank" in text, text
    assert "--ranks 0 is too small; give at least 1" in trainer("info", "--config", "gpt2-124m", "--device", "cpu", "--ranks", 0, code=64)


def test_info_compares_tensors_with_the_configuration(out, tmp_path):
    def store(tensors):
        """A safetensors file of zeros."""
        header, at = {}, 0
        for name, (dtype, shape) in sorted(tensors.items()):
            size = {"F32": 4, "I64": 8, "BF16": 2}[dtype]
            for n in shape:
                size *= n
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header).encode()
        (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(at))

    (tmp_path / "config.json").write_text(SHAPE)
    whole = info(out / "checkpoint-10")[0]
    assert whole["verified"] and {t["is"] for t in whole["tensors"]} == {"fits"} and len(whole["tensors"]) == 16
    kept = {t["name"]: (t["dtype"], t["shape"]) for t in whole["tensors"]}
    store({f"transformer.{name}": t for name, t in kept.items()})
    assert {t["is"] for t in info(tmp_path)[0]["tensors"]} == {"fits"}

    kept["h.0.attn.bias"] = ("F32", [1, 1, 16, 16])
    store(kept)
    said = info(tmp_path)[0]
    assert [t["name"] for t in said["tensors"] if t["is"] == "superfluous"] == ["h.0.attn.bias"]

    del kept["ln_f.weight"]
    kept["wpe.weight"] = ("BF16", [8, 16])
    kept["ln_f.bias"] = ("I64", [16])
    store(kept)
    said, why = info(tmp_path, code=65)
    assert "3 of the model's tensors are missing or do not match config.json" in why
    assert {t["name"]: t["is"] for t in said["tensors"] if t["is"] != "fits"} == {
        "ln_f.weight": "missing", "wpe.weight": "another shape", "ln_f.bias": "a type that is not read",
        "h.0.attn.bias": "superfluous"}
    assert {"name": "ln_f.weight", "shape": [16], "is": "missing"} in said["tensors"]
    run = subprocess.run([BUILD / "trainer", "info", tmp_path, "--device", "cpu"], text=True, capture_output=True, check=False)
    assert run.returncode == 65 and "ln_f.weight [16] missing" in run.stdout and "wte.weight" not in run.stdout
    assert "wte.weight [256, 16] F32" in trainer("info", out / "checkpoint-10", "--tensors", "--device", "cpu")

    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"wte.weight": "model-1.safetensors"}}')
    assert "model-1.safetensors" in info(tmp_path, code=66)[1]  # an index that leads nowhere is not a bare configuration


@pytest.mark.parametrize("flag,order", [((), "any"), (("--deterministic",), "fixed")])
def test_the_log_says_what_serves_attention(tmp_path, flag, order):
    run = subprocess.run([BUILD / "trainer", "bench", "--config", "tiny-gpt2", "--device", "cpu", "--only", "steps", "--steps", "1",
                          *flag], text=True, capture_output=True, check=True)
    assert f'attention.by kernel="plain loops" order={order} scratch_bytes=0' in run.stderr


def mpirun(ranks, *args, env=()):
    return mpirun_each(*[[BUILD / "trainer", *args]] * ranks, env=env)


def tiny_shard(path):
    """Tokens for tiny-gpt2, whose vocabulary is 48 (agent/train/shard.h)."""
    data = bytes((i * i // 7 + i) % 48 for i in range(5000))
    path.write_bytes(b"mrdtoken" + struct.pack("<IIQII", 1, 1, len(data), 48, 0) + hashlib.sha256(data).digest() + bytes(64) + data)


needs_mpi = pytest.mark.skipif(not shutil.which("mpirun") or not (BUILD / "trainer-mpi.so").exists(), reason="no Open MPI here")


@needs_mpi
def test_ranks_that_do_not_begin_alike_are_refused(out):
    """The second rank does not see the first one's checkpoints: it would begin anew beside it."""
    def train(folder, *more):
        return [BUILD / "trainer", "train", "--config", out.parent / "shape.json", "--data", out.parent / "data.bin", "--device",
                "cpu", "--steps", 12, "--batch", 2, "--resume", "auto", "--out", folder, *more]

    for second in (train(out.parent / "elsewhere"), train(out, "--batch", 3), train(out, "--lr", "1e-3"),
                   train(out, "--val", out.parent / "data.bin"), train(out, "--stop-at", 11)):
        refused = mpirun_each(train(out), second)
        assert refused.returncode != 0 and "1 of 2 ranks do not start in the state of rank 0" in refused.stderr, refused.stderr
        assert not (out / "checkpoint-12").exists()
    went_on = mpirun_each(train(out), train(out))
    assert went_on.returncode == 0 and (out / "checkpoint-12").exists(), went_on.stderr


@needs_mpi
def test_a_run_goes_on_with_fewer_ranks(tmp_path):
    """Two ranks, then one with twice the batch, which sees the samples that two would have seen."""
    tiny_shard(tmp_path / "data.bin")

    def train(stop, batch):
        return [BUILD / "trainer", "train", "--config", "tiny-gpt2", "--data", tmp_path / "data.bin", "--device", "cpu", "--out",
                tmp_path / "out", "--resume", "auto", "--steps", 9, "--batch", batch, "--stop-at", stop]
    assert mpirun_each(*[train(2, 3)] * 2).returncode == 0
    went_on = mpirun_each(train(3, 6))
    assert went_on.returncode == 0, went_on.stderr
    assert ("resumed with --batch 6 (was 3), ranks 1 (was 2): a step takes 48 tokens as before; the data continues at sample 13 of 624 in "
            "epoch 1, and no sample is skipped or repeated") in went_on.stderr, went_on.stderr


@needs_mpi
def test_ranks_validate_together(tmp_path):
    """The loss of the same weights (--lr 0), of all windows in batches that do not divide by the ranks, to the last digit that is told."""
    (tmp_path / "shape.json").write_text(SHAPE)
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(5000)))
    trainer("tokenize", "--out", tmp_path / "data.bin", tmp_path / "text")

    def losses(ranks):
        out = tmp_path / f"out{ranks}"
        run = mpirun(ranks, "train", "--config", tmp_path / "shape.json", "--data", tmp_path / "data.bin", "--val",
                     tmp_path / "data.bin", "--val-every", 1, "--val-batches", 999, "--lr", 0, "--steps", 2, "--batch", 3,
                     "--device", "cpu", "--out", out)
        assert run.returncode == 0, run.stderr
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return [line["val_loss"] for line in lines if "val_loss" in line]

    alone = losses(1)
    assert len(alone) == 2 and losses(2) == alone and losses(3) == alone


@needs_mpi
def test_deterministic_ranks_do_not_depend_on_mpis_algorithms(tmp_path):
    """Which rank adds first is the algorithm's choice; with --deterministic it is the ranks' order."""
    tiny_shard(tmp_path / "data.bin")

    def weights(name, *options, **algorithms):
        env = {f"OMPI_MCA_coll_tuned_{k}_algorithm": str(v) for k, v in algorithms.items()}
        run = mpirun(4, "train", "--config", "tiny-gpt2", "--data", tmp_path / "data.bin", "--steps", 5, "--batch", 2, "--device", "cpu",
                     "--out", tmp_path / name, *options, env=dict(env, OMPI_MCA_coll_tuned_use_dynamic_rules="1"))
        assert run.returncode == 0, run.stderr
        return digests(tmp_path / name / "checkpoint-5")

    first = weights("1", "--deterministic", allreduce=1, alltoallv=1, allgatherv=1)
    assert weights("2", "--deterministic", allreduce=4, alltoallv=2, allgatherv=3) == first
    assert weights("3", "--deterministic", allreduce=5) == first
    assert weights("4", allreduce=1) != weights("5", allreduce=4)  # else this test would show nothing


@needs_mpi
def test_a_file_tells_of_a_preemption(tmp_path):
    """Each node has its own file; what one rank sees, all do in the same step."""
    tiny_shard(tmp_path / "data.bin")

    def train(out, *more):
        return [BUILD / "trainer", "train", "--config", "tiny-gpt2", "--data", tmp_path / "data.bin", "--batch", 2, "--device", "cpu",
                "--out", tmp_path / out, "--steps", 1000000, "--resume", "auto", "--log-every", 0, *more]

    lines = tmp_path / "run/metrics.jsonl"
    started = mpirun_start(train("run", "--preempt-file", tmp_path / "none"), train("run", "--preempt-file", tmp_path / "notice"))
    until(lambda: started.poll() is not None or (lines.exists() and lines.read_text().count("\n") > 3))
    (tmp_path / "notice").touch()
    _, err = started.communicate(timeout=240 * SLOW)
    assert started.returncode == 75, err
    assert "stopped by a preemption notice after step " in err
    step = int(err.split("preemption notice after step ")[1].split(";")[0])
    assert [p.name for p in (tmp_path / "run").glob("checkpoint-*")] == [f"checkpoint-{step}"]

    (tmp_path / "notice").unlink()
    rest = ("--stop-at", step + 3, "--preempt-file", tmp_path / "notice")
    assert mpirun_each(*[train("run", *rest)] * 2).returncode == 0
    assert mpirun_each(*[train("straight", *rest)] * 2).returncode == 0
    for name in ("model.safetensors", "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors", "trainer.json"):
        assert (tmp_path / f"run/checkpoint-{step + 3}" / name).read_bytes() == (
            tmp_path / f"straight/checkpoint-{step + 3}" / name).read_bytes()


SIMT = BUILD / "simt/trainer"


def f32_tensors(folder):
    """Of the model, and the moments."""
    return [memoryview(b"".join(data for _, data in sorted(pairs))).cast("f") for pairs in (
        [(name, data) for name, (_, data) in model(folder).items()], moments(folder).items())]


@needs_mpi
@pytest.mark.skipif(not SIMT.exists(), reason="sanitizers do not understand threads that are fibers")
def test_gpus_may_meet_over_mpi(tmp_path):
    """The GPU is the host's (tests/simt). One rank with twice the accumulation sees the same samples as two."""
    tiny_shard(tmp_path / "data.bin")

    def train(out, *more, device="cuda"):
        return [SIMT, "train", "--config", "tiny-gpt2", "--data", tmp_path / "data.bin", "--steps", 3, "--batch", 2, "--device", device,
                "--out", tmp_path / out, "--dtype", "f32", *more]

    def losses(out):
        return [json.loads(line)["loss"] for line in (tmp_path / out / "metrics.jsonl").read_text().splitlines()]

    two = mpirun_each(*[train("two", "--comm", "mpi", "--deterministic")] * 2)
    assert two.returncode == 0 and "on the host, 2 ranks, mpi" in two.stderr, two.stderr
    one = subprocess.run(list(map(str, train("one", "--accum", 2, "--deterministic"))), text=True, capture_output=True, check=False)
    assert one.returncode == 0, one.stderr
    assert losses("two") == pytest.approx(losses("one"), rel=1e-6)
    for a, b in zip(*(f32_tensors(tmp_path / out / "checkpoint-3") for out in ("one", "two"))):
        assert len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) <= 1e-6 * max(map(abs, a))


CUBE = r"matmul (\d{3,})x\1x\1 "  # the machine's speed is measured by them: how many that takes, it decides itself


def choices(checkpoint):
    """The first number of each algorithm, by what it multiplies, but for cubes."""
    machine, *lines = (checkpoint / "algorithms.txt").read_text().splitlines()
    assert machine.startswith("for the host driver 0 cublasLt ")
    return {question: int.from_bytes(bytes.fromhex(algorithm)[:8], "little")
            for algorithm, question in (line.split(" ", 1) for line in lines) if not re.match(CUBE, question)}


def reseal(checkpoint):
    """The manifest, of what is in the folder now."""
    files = sorted(p for p in checkpoint.iterdir() if p.name != "manifest.sha256")
    (checkpoint / "manifest.sha256").write_text("".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files))


def other_choices(checkpoint):
    """Another algorithm for each product, and none for cubes, as if that run had measured fewer."""
    path = checkpoint / "algorithms.txt"
    machine, *lines = path.read_text().splitlines()
    lines = [line for line in lines if not re.search(" " + CUBE, line)]
    path.write_text("\n".join([machine, *[(b"\2" + bytes.fromhex(line[:128])[1:]).hex() + line[128:] for line in lines]]) + "\n")
    reseal(checkpoint)


@pytest.mark.skipif(not SIMT.exists(), reason="sanitizers do not understand threads that are fibers")
def test_a_resumed_run_multiplies_as_before(tmp_path):
    """With --deterministic the algorithms of products are part of a checkpoint. The GPU is the host's, its cuBLASLt a double."""
    tiny_shard(tmp_path / "data.bin")

    def train(stop, *more):
        run = subprocess.run([SIMT, "train", "--config", "tiny-gpt2", "--data", tmp_path / "data.bin", "--steps", "9", "--batch", "2",
                              "--device", "cuda", "--dtype", "f32", "--keep", "0", "--out", tmp_path / "out", "--resume", "auto",
                              "--stop-at", str(stop), *more], text=True, capture_output=True, check=False,
                             env=dict(os.environ, XDG_CACHE_HOME=str(tmp_path / "cache")))
        assert run.returncode == 0, run.stderr
        return run.stderr

    said = train(1, "--deterministic")
    first = choices(tmp_path / "out/checkpoint-1")
    assert len(first) > 10 and set(first.values()) == {0}  # small products take what is proposed first
    other_choices(tmp_path / "out/checkpoint-1")
    said = train(2, "--deterministic")
    assert choices(tmp_path / "out/checkpoint-2") == dict.fromkeys(first, 2) and "deterministic.products" not in said, said

    path = tmp_path / "out/checkpoint-2/algorithms.txt"
    path.write_text(path.read_text().replace("for the host", "for another"))
    reseal(tmp_path / "out/checkpoint-2")
    said = train(3, "--deterministic")  # what does not fit is chosen anew, and that is told
    assert choices(tmp_path / "out/checkpoint-3") == first
    changed = re.search(r"deterministic.products (\d+) matrix products use other algorithms", said)
    assert changed and int(changed[1]) >= len(first), said

    train(4)
    assert not (tmp_path / "out/checkpoint-4/algorithms.txt").exists()


@needs_mpi
@pytest.mark.skipif(not SIMT.exists(), reason="sanitizers do not understand threads that are fibers")
def test_ranks_multiply_alike(tmp_path):
    """A rank on another node may have timed otherwise: with --deterministic all take the first one's algorithms."""
    tiny_shard(tmp_path / "data.bin")

    def rank(out, stop):
        return [SIMT, "train", "--config", "tiny-gpt2", "--data", tmp_path / "data.bin", "--steps", 4, "--batch", 2, "--device", "cuda",
                "--dtype", "f32", "--comm", "mpi", "--deterministic", "--out", tmp_path / out, "--resume", "auto", "--stop-at", stop]
    begun = mpirun_each(rank("out", 1), rank("out", 1))
    assert begun.returncode == 0 and "uses the algorithms" not in begun.stderr, begun.stderr
    shutil.copytree(tmp_path / "out/checkpoint-1", tmp_path / "other")
    other_choices(tmp_path / "other")
    went_on = mpirun_each(rank("out", 2), ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-m", "sh", "-c",
                                           f'mount --bind {tmp_path}/other {tmp_path}/out/checkpoint-1 && exec "$@"', "sh", *rank("out", 2)])
    assert went_on.returncode == 0 and "rank=1 uses the algorithms of rank 0" in went_on.stderr, went_on.stderr
    assert set(choices(tmp_path / "out/checkpoint-2").values()) == {0}


def test_comm_refuses_what_cannot_be(tmp_path):
    tiny_shard(tmp_path / "data.bin")

    def says(word, code, *more, **env):
        run = subprocess.run([BUILD / "trainer", "train", "--config", "tiny-gpt2", "--data", tmp_path / "data.bin", "--steps", "1", "--batch",
                              "2", "--device", "cpu", "--out", tmp_path / "out", *more], env=dict(os.environ, **env), text=True,
                             capture_output=True, check=False)
        assert run.returncode == code and word in run.stderr, run.stderr
    says("--comm x is invalid; give auto, nccl or mpi", 64, "--comm", "x")
    says("--comm nccl is for GPUs", 64, "--comm", "nccl", RANK="0", WORLD_SIZE="2")
    says("start them with mpirun", 69, "--comm", "mpi", RANK="0", WORLD_SIZE="2")
    says("", 0, "--comm", "mpi")  # one rank speaks to nobody
