"""The trainer's threads on a CPU: how often they wait for each other, and that what is learnt does not depend on them."""
import hashlib
import os

import pytest

from harness.mirrord import BUILD

SMALL = '{"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 64, "vocab_size": 256, "n_positions": 32}'
LARGE = '{"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 256, "vocab_size": 256, "n_positions": 64}'


@pytest.fixture
def train(tmp_path):
    """Trains with so many threads; the digests of what it wrote, and how often the process slept."""
    (tmp_path / "text").write_bytes(bytes(i * i % 251 for i in range(50000)))
    assert os.spawnl(os.P_WAIT, BUILD / "trainer", "trainer", "tokenize", "--out", str(tmp_path / "data.bin"), str(tmp_path / "text")) == 0

    def run(shape, threads, steps):
        out = tmp_path / f"out-{threads}-{steps}"
        (tmp_path / "shape.json").write_text(shape)
        words = ["trainer", "train", "--config", tmp_path / "shape.json", "--data", tmp_path / "data.bin", "--out", out, "--device", "cpu",
                 "--steps", steps, "--warmup", 2, "--lr", "1e-3", "--min-lr", "1e-3", "--batch", 8, "--log-every", 1000]
        child = os.spawnve(os.P_NOWAIT, BUILD / "trainer", [str(w) for w in words], dict(os.environ, OMP_NUM_THREADS=str(threads)))
        _, status, used = os.wait4(child, 0)
        assert status == 0
        files = sorted((out / f"checkpoint-{steps}").glob("*.safetensors"))
        return [hashlib.sha256(f.read_bytes()).hexdigest() for f in files], used.ru_nvcsw
    return run


def test_small_products_wait_for_nobody(train):
    """Each parallel region costs a sleep or two. Where other programs have the cores, each of those lasts milliseconds."""
    _, few = train(SMALL, 2, 20)
    _, many = train(SMALL, 2, 60)
    assert many - few < 10 * (60 - 20), "sleeps in 40 steps (it was 3,650 when every product was split)"


def test_what_is_learnt_does_not_depend_on_the_threads(train):
    one, _ = train(LARGE, 1, 3)
    assert one and all(train(LARGE, n, 3)[0] == one for n in (2, 3, 5))
