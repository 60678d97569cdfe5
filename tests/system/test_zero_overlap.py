"""ZeRO on a GPU and NCCL that the host plays: collectives lie under compute, and no stream forgets to wait for the other."""
import pytest

from harness import overlap
from harness.checkpoint import digests
from test_trainer_doubles import TRAINER, data, run_ranks  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(not TRAINER.exists(), reason="sanitizers do not understand threads that are fibers")
SHAPE = '{"model_type": "gpt2", "n_layer": 4, "n_head": 2, "n_embd": 16, "vocab_size": 256, "n_positions": 16}'
SHARES = 1000  # bytes: the ranks' norm, loss and notices are less, a group is more


def train(folder, out, zero, *more, n=2, **env):
    (folder / "shape.json").write_text(SHAPE)
    codes, said = run_ranks(folder, "--zero", str(zero), "--deterministic", "--steps", "3", *more, n=n, out=out, timeout=60, **env)
    assert codes == [0] * n, said
    return digests(folder / out / "checkpoint-3")


def test_no_stream_forgets_to_wait(data):  # noqa: F811
    """Without SIMT_SEED work runs as it is asked for; a seed runs it as late as it may, and chooses among streams."""
    for name, stages, more in (("accum", range(4), ["--accum", "2", "--dtype", "bf16"]), ("recompute", [3, 3], ["--recompute", "2"])):
        want = train(data, f"{name}-eager", 0, *more)
        for seed, zero in enumerate(stages):
            assert train(data, f"{name}-{seed}", zero, *more, SIMT_SEED=str(seed)) == want, (name, zero, seed)


def test_groups_of_ranks_on_gpus(data):  # noqa: F811
    want = train(data, "eager", 1, "--shard-group", "2", n=4)
    assert train(data, "late", 3, "--shard-group", "2", n=4, SIMT_SEED="3") == want


@pytest.mark.parametrize("zero", range(4))
def test_collectives_lie_under_compute(data, zero):  # noqa: F811
    """Of each step's sums of gradients only the last, of the embeddings, lies bare; of stage 3's gathers only the first."""
    train(data, "out", zero, SIMT_SEED="1", SIMT_TRACE=str(data / "trace"))
    entries = [e for e in overlap.timeline(overlap.read(data / "trace.0")) if e.bytes > SHARES]
    groups = 6
    sums = [e for e in entries if e.what == "reduce_scatter"][3:]  # the first three warm NCCL up
    assert len(sums) == 3 * groups and [bool(e.hidden) for e in sums] == [True] * (groups - 1) + [False] + (
        [True] * (groups - 1) + [False]) * 2
    gathers = [e for e in entries if e.what == "allgather" and e.begin > sums[groups - 1].end and e.end <= sums[-1].begin]
    if zero in (1, 2):  # after the updates of the first two steps, of five groups: beside the next group's
        assert len(gathers) == 2 * 5 and sum(not e.hidden for e in gathers) <= 2
    if zero == 3:  # in the second and third step: four blocks and the embeddings, and back two that are no more there
        assert len(gathers) == 2 * 7 and sum(not e.hidden for e in gathers) <= 2
