"""Tensor parallel ranks on GPUs and NCCL that the host plays: collectives of two streams are under way at once, none waits in vain, and no
stream forgets to wait for the other."""
import pytest

from harness.checkpoint import digests
from test_trainer_doubles import TRAINER, data, losses, run_ranks  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(not TRAINER.exists(), reason="sanitizers do not understand threads that are fibers")
SHAPES = {
    "gpt2": '{"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 301, "n_positions": 16}',
    "llama": """{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
                 "intermediate_size": 48, "vocab_size": 301, "max_position_embeddings": 16, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
                 "tie_word_embeddings": false}"""}


def train(folder, out, shape, *more, n=2, **env):
    (folder / "shape.json").write_text(SHAPES[shape])
    codes, said = run_ranks(folder, "--deterministic", "--steps", "2", "--lr", "3e-3", *more, n=n, out=out, timeout=600, **env)
    assert codes == [0] * n, said
    assert not list((folder / out).glob("flight-*"))
    return digests(folder / out / "checkpoint-2")


@pytest.mark.parametrize("shape,n,more,seeds", [
    ("gpt2", 2, ["--dtype", "f32"], "12"), ("llama", 4, ["--dtype", "bf16", "--zero", "1", "--recompute", "block"], "3"),
    ("gpt2", 4, ["--dtype", "f32", "--zero", "3", "--accum", "2"], "4")], ids=str)
def test_whatever_order_the_streams_run_in(data, shape, n, more, seeds):  # noqa: F811
    """Without SIMT_SEED work runs as it is asked for; a seed runs it as late as it may, and chooses among streams."""
    want = train(data, "eager", shape, *more, "--tp", "2", n=n)
    for seed in seeds:
        assert train(data, f"late-{seed}", shape, *more, "--tp", "2", n=n, SIMT_SEED=seed) == want
    train(data, "alone", shape, *[m for m in more if m not in ("--zero", "1", "3")], "--batch", n, n=1)  # n / 2 ranks of 2
    assert losses(data, "eager") == pytest.approx(losses(data, "alone"), rel=1e-4 if "f32" in more else 0.02)


def test_a_rank_that_stands_still_is_found(data):  # noqa: F811
    """The record has the collectives of all groups, in one order on all ranks."""
    (data / "shape.json").write_text(SHAPES["llama"])
    ended, said = run_ranks(data, "--steps", 1000, "--tp", 2, "--zero", 1, n=4, timeout=5, FAKE_NCCL="1.never=1;at=60")
    assert ended == [75] * 4, said


def test_a_library_that_begins_collectives_in_any_order(data):  # noqa: F811
    """NCCL_LAUNCH_ORDER_IMPLICIT came with 2.26. One group at a time needs no order, nor do collectives of one stream: those of ranks
    that cut one model alone."""
    (data / "shape.json").write_text(SHAPES["llama"])
    for env, why in (({"FAKE_NCCL": "version=22505"}, "NCCL 2.25.5 does not start them in the same order"),
                     ({"NCCL_LAUNCH_ORDER_IMPLICIT": "0"}, "NCCL_LAUNCH_ORDER_IMPLICIT=0 lets ranks start them in any order; unset it")):
        ended, said = run_ranks(data, "--steps", 1, "--tp", 2, n=4, timeout=600, **env)
        assert ended == [69] * 4 and all(why in s and "--zero 3" in s for s in said), said
    train(data, "newer", "llama", "--tp", "2", n=4, FAKE_NCCL="version=22602")
    train(data, "one-stream", "llama", "--tp", "2", FAKE_NCCL="version=22505")
    train(data, "whole", "llama", "--zero", "3", FAKE_NCCL="version=22505")
