"""The model of a step's time (tests/bench/scaling.py) and what docs/scaling.md has of it."""
import pathlib
import subprocess
import sys

from harness.mirrord import BUILD

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))
import scaling  # noqa: E402


def predict(**how):
    return scaling.predict(BUILD / "trainer", "llama-8b", **{"network": "IB", "batch": 2, "seq": 8192, **how})


def test_the_page_has_what_it_says():
    done = subprocess.run([sys.executable, ROOT / "tests/bench/scaling.py", "--trainer", BUILD / "trainer"], check=True, capture_output=True, text=True)
    page = (ROOT / "docs/scaling.md").read_text()
    assert done.stdout in page
    small, large, kept = (predict(gpus=8, zero=3), predict(gpus=128, zero=3), predict(gpus=8, zero=3, recompute=False))
    for r in (small, large, kept):
        assert f"{r['tokens_per_s_gpu']:,.0f}" in page, r


def test_no_faster_than_products_or_the_network_alone():
    m = scaling.model_of(BUILD / "trainer", "llama-8b", 64, 0, 2, 8192, "none")
    for network, bytes_per_s in scaling.NETWORKS.items():
        r = predict(gpus=64, network=network, zero=0, recompute=False)
        assert r["step_s"] >= m["token_flops"] * 2 * 8192 / scaling.RATES["flops"]
        assert r["step_s"] >= m["gradient_bytes"]["plain"] / bytes_per_s
        assert r["step_s"] <= predict(gpus=512, network=network, zero=0, recompute=False)["step_s"]
    whole, packed = (predict(gpus=64, network="Ethernet", zero=0, compress=c)["step_s"] for c in ("none", "powersgd:4"))
    assert packed < whole
