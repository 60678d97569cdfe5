"""A hundred clients on a repository that nobody had: each byte leaves the Hub once, and so does each word about it.

HERD_MIB=2048 sets the size of a cluster's models; what it takes is printed (pytest -s).
"""
import collections
import json
import os
import re
import subprocess
import sys


from harness.hub import Big, sha256_of, size_of
from harness.mirrord import ROOT, SLOW

MIB = int(os.environ.get("HERD_MIB", 64 if SLOW == 1 else 32))
CLIENTS, CHECKING = 100, 4
SHARDS = 8
CALM = "rule '^api/.*/revision/' { ttl = 1h }"  # the branch stays known for as long as the large size takes


def model(small=12):
    """Shards, a tokenizer, and what else stands beside them."""
    shards = {f"model-{i:05d}-of-{SHARDS:05d}.safetensors": Big((MIB << 20) // SHARDS + i * 4097, i) for i in range(1, SHARDS + 1)}
    texts = {f"{'onnx/' if i % 3 == 0 else ''}config-{i}.json": b"{%d}" % i * (20 + i) for i in range(small)}
    return shards | texts | {"tokenizer.json": Big(2 << 20, 99), "README.md": b"# big\n"}


def herd(m, clients=CLIENTS, checking=CHECKING):
    run = subprocess.run([sys.executable, ROOT / "tests/harness/hub_herd.py", str(m.port), "/hf", "org/big", str(clients), str(checking)],
                         capture_output=True, text=True, timeout=1500 * SLOW, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def asked_for_files(hub):
    """How often each was asked for; where the Hub led us on by itself is not counted."""
    return collections.Counter(re.sub(r".*/resolve/[0-9a-f]+/", "", c[1]) for c in hub.calls if "/resolve/" in c[1])


def of_cdn(files):
    return {sha256_of(d): size_of(d) for d in files.values() if isinstance(d, Big)}


def test_a_new_commit_and_a_known_one(mirrord, hub):
    files = model()
    r = hub.repo("org/big", files=files)
    m = mirrord(hub.config(more=CALM))
    got = herd(m)
    print(f"\ncold: {got}; API calls {len(hub.api_calls())}, for files {len(hub.calls) - len(hub.api_calls())}, CDN {len(hub.cdn_calls)}")
    assert got["whole"] == CLIENTS, got
    assert hub.cdn_bytes == of_cdn(files), "a byte that left the CDN twice, or not at all"
    assert len(hub.api_calls()) == 2, hub.api_calls()
    assert asked_for_files(hub) == collections.Counter(list(files)), "one question a file"

    m.settle()
    hub.calls.clear()
    hub.cdn_calls.clear()
    got = herd(m)
    print(f"known: {got}")
    assert got["whole"] == CLIENTS and not hub.calls and not hub.cdn_calls

    hub.cdn_bytes.clear()
    news = {"model-00003-of-00008.safetensors": Big(5 << 20, 77), "config-1.json": b"[1]"}
    r.commit(news)
    m.ctl("cache", "rm", "hf/api/models/org/big/revision/main")
    got = herd(m)
    print(f"a new commit: {got}; API calls {len(hub.api_calls())}, for files {len(hub.calls) - len(hub.api_calls())}")
    assert got["whole"] == CLIENTS, got
    assert len(hub.api_calls()) == 2 and asked_for_files(hub) == collections.Counter(list(news)) and hub.cdn_bytes == of_cdn(news)


def test_a_hub_that_counts(mirrord, hub):
    """Its budget is spent in the middle: we rest when it says so, whoever waits here, and nobody is told 429."""
    files = model(small=60)
    hub.repo("org/big", files=files)
    hub.budget = (40, 2)
    connections = 4
    m = mirrord(hub.config(more=f"{CALM} connections = {connections}"))
    got = herd(m, checking=1)
    assert got["whole"] == CLIENTS, got
    assert hub.refused <= connections * 5, "more than were on their way when it was spent"
    assert len(hub.api_calls()) + sum(asked_for_files(hub).values()) <= 2 + len(files) + hub.refused
    assert hub.cdn_bytes == of_cdn(files)
