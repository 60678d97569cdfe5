"""The log of a cluster: nodes publish to one bucket that fails in every way that buckets do, are killed and stopped, and what they were told
is judged against what the bucket has (harness/history.py). Two deliberate mistakes must be found: a checker that never finds anything
proves nothing."""
import dataclasses
import random
import signal
import time

import pytest

from harness import history
from harness.bucket import Bucket, Fault
from harness.cluster import Cluster, probe
from harness.mirrord import SLOW, until

UNSURE = [Fault(k, "log/", m, 0.04) for k, m in (("500", ("PUT", "GET")), ("503-after", ("PUT",)), ("cut", ("PUT", "GET")), ("cut-after", ("PUT",)),
                                                 ("late", ("PUT",)), ("500-late", ("PUT",)), ("409", ("PUT",)), ("429", ("PUT", "GET")), ("truncate", ("GET",)))]


@pytest.fixture
def bucket():
    with Bucket() as b:
        yield b


@pytest.fixture
def cluster(bucket, tmp_path):
    c = Cluster(bucket, tmp_path)
    yield c
    c.stop()


def test_a_bucket_that_keeps_its_promises(bucket, tmp_path):
    code, said = probe(bucket, tmp_path)
    assert code == 0 and said.count(": ok\n") == 7, said
    assert bucket.objects == {}, "the probe leaves nothing"
    assert sum(bucket.counts.values()) < 120


@pytest.mark.parametrize("broken, words", [
    ({"faults": [Fault("ignore")]}, 'a key is created once: it ignores "If-None-Match: *"'),
    ({"atomic": False}, "succeeded (\"If-None-Match: *\" is not atomic)"),
    ({"versioned": True}, "it keeps old versions of objects"),
    ({"clock_ahead": 600}, "its clock and this machine's differ by"),
    ({"faults": [Fault("flip", methods=("GET",))]}, "it refused to overwrite a key and then overwrote it"),
    ({"faults": [Fault("read-only", methods=("PUT",))]}, "does not permit this request (403 AccessDenied)"),
    ({"faults": [Fault("full", methods=("PUT",))]}, "has no space left (507 InsufficientStorage)"),
])
def test_a_bucket_that_breaks_a_promise(bucket, tmp_path, broken, words):
    for name, value in broken.items():
        setattr(bucket, name, value)
    code, said = probe(bucket, tmp_path)
    assert code not in (0, -6, 99) and words in said, said


def test_a_bucket_that_does_not_check_what_it_gets(bucket, tmp_path):
    bucket.checks_bodies = False
    code, said = probe(bucket, tmp_path)
    assert code == 0 and "ok: it stores bytes that do not match their announced SHA-256" in said, said


def test_a_404_of_a_proxy_is_not_the_end_of_the_log(cluster):
    written(cluster)
    cluster.bucket.faults = [Fault("404", "log/", ("GET",))]
    cluster.start(1, 5)
    until(lambda: "a 404 that does not come from S3" in cluster.said())
    assert cluster.count("read") and not any(o["node"] == 1 for o in history.lines_of(cluster.history))
    cluster.bucket.faults = []
    cluster.end()
    assert not cluster.judge()[1]


def test_a_busy_bucket_is_asked_again(bucket, tmp_path):
    bucket.faults = [Fault("503", p=0.2), Fault("503-after", methods=("PUT",), p=0.1)]
    for _ in range(3):
        code, said = probe(bucket, tmp_path)
        assert code in (0, 75), said  # never: it breaks a promise


def test_one_node(cluster):
    cluster.start(0, 200)
    cluster.end()
    log, bad = cluster.judge()
    assert not bad and cluster.count("ok") == 200 and len(log.position) == 200
    # A commit costs one PUT; a poll costs one GET, which finds nothing.
    assert cluster.bucket.counts["PUT", "log"] == log.length
    assert ("GET", "list") not in cluster.bucket.counts


def test_nodes_that_contend(cluster):
    for node in range(3):
        cluster.start(node, 150)
    cluster.end()
    log, bad = cluster.judge()
    oks = cluster.count("ok")
    assert not bad and cluster.count("unknown") == 0 and oks == len(log.position)
    assert oks + cluster.count("no") == 450 and oks > 150


def test_responses_that_do_not_say_what_happened(cluster):
    cluster.bucket.faults = list(UNSURE)
    for node in range(3):
        cluster.start(node, 100, settle_ms=300)
    until(lambda: all(c.poll() is not None for c in cluster.children.values()) or cluster.count("ok") > 60)
    cluster.bucket.faults = []
    cluster.end()
    log, bad = cluster.judge()
    assert not bad and cluster.count("ok") > 60, cluster.said()


@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_that_are_killed_and_stopped(cluster, seed):
    """A node that is killed replays the log at its next start; one that was stopped finds its slot taken."""
    dice = random.Random(seed)
    cluster.bucket.faults = list(UNSURE)
    for node in range(4):
        cluster.start(node, 100000, settle_ms=2000)
    for _ in range(12):
        time.sleep(dice.uniform(0.1, 0.6))
        node = dice.randrange(4)
        if dice.random() < 0.5:
            cluster.children[node].kill()
            cluster.children[node].wait()
            cluster.start(node, 100000, settle_ms=2000)
        else:
            cluster.children[node].send_signal(signal.SIGSTOP)
            time.sleep(dice.uniform(0.1, 0.5))
            cluster.children[node].send_signal(signal.SIGCONT)
    until(lambda: cluster.count("ok") > 50)
    cluster.stop()
    cluster.bucket.faults = []
    cluster.start(9, 1)  # what the dead left behind is read by the next one
    assert cluster.children.pop(9).wait(timeout=120 * SLOW) == 0, cluster.said()
    log, bad = cluster.judge()
    assert not bad and cluster.count("ok") > 50, (bad, cluster.said())


@pytest.mark.parametrize("fault", [Fault("cut"), Fault("503"), Fault("slow", delay=600)], ids=["cut", "busy", "silent"])
def test_a_node_that_is_asked_to_end(cluster, fault):
    """It ends although its slot cannot be settled; what it was about to publish is open."""
    cluster.start(0, 100000, settle_ms=3600 * 1000)
    until(lambda: cluster.count("ok") > 20)
    cluster.bucket.faults = [dataclasses.replace(fault, keys="log/", methods=("PUT",))]
    before = cluster.bucket.counts["PUT", "log"]
    until(lambda: cluster.bucket.counts["PUT", "log"] > before + (fault.kind != "slow"))
    cluster.children[0].send_signal(signal.SIGTERM)
    cluster.end((75,))
    cluster.bucket.faults = []
    assert not cluster.judge()[1] and "E_CANCELLED" in cluster.history.read_text()


# --- the same through a store and its sequencer ---

def test_stores_that_contend(cluster):
    """Clients of one store share entries: a group is one PUT."""
    for node in range(3):
        cluster.start_store(node, 200)
    cluster.end()
    log, bad = cluster.judge()
    oks = cluster.count("ok")
    assert not bad and cluster.count("unknown") == 0 and oks == len(log.position) > 100, (bad, cluster.said())
    assert log.length < oks


@pytest.mark.parametrize("seed", [1, 2])
def test_stores_that_are_killed(cluster, seed):
    """Rows and the position in the log are one: a store that is killed goes on where it was, and one that is new has the same rows."""
    dice = random.Random(seed)
    cluster.bucket.faults = list(UNSURE)
    for node in range(3):
        cluster.start_store(node, 100000, settle_ms=2000)
    for _ in range(8):
        time.sleep(dice.uniform(0.2, 0.6))
        node = dice.randrange(3)
        cluster.children[node].kill()
        cluster.children[node].wait()
        cluster.start_store(node, 100000, settle_ms=2000)
    until(lambda: cluster.count("ok") > 50)
    cluster.stop()
    cluster.bucket.faults = []
    for node in (0, 7):
        cluster.start_store(node, 20)
        assert cluster.children.pop(node).wait(timeout=120 * SLOW) == 0, cluster.said()
    _, bad = cluster.judge()
    assert not bad, (bad, cluster.said())


def test_a_store_whose_bucket_goes_away(cluster):
    """What it sent has an unknown outcome, what comes later is refused at once, and all goes on by itself."""
    cluster.start_store(0, 4000, settle_ms=300)
    cluster.start_store(1, 4000, settle_ms=300)
    for words in ("cut", "late"):
        until(lambda before=cluster.count("ok"): cluster.count("ok") > before + 20)
        cluster.bucket.faults = [Fault(words, "log/", ("PUT",)), Fault("cut", "log/", ("GET",))]
        until(lambda before=cluster.count("unknown"): cluster.count("unknown") > before + 20)
        cluster.bucket.faults = []
    until(lambda before=cluster.count("ok"): cluster.count("ok") > before + 20)
    cluster.stop()
    log, bad = cluster.judge()
    assert not bad, (bad, cluster.said())


def test_a_store_with_rows_of_its_own_does_not_join(cluster):
    cluster.start_store(0, 20, more=("used",))
    cluster.end((73,))
    assert "a mirror joins a cluster with an empty state_dir" in cluster.said() and cluster.bucket.objects == {}


# --- mistakes that must be found ---

def test_the_mistake_of_taking_a_404_for_a_failure_is_found(cluster):
    """Iceberg and ClickHouse made it: a write whose response was lost is reported as failed, and lands afterwards. One node makes it here:
    nobody takes the slot before the write lands."""
    cluster.bucket.faults = [Fault("500-late", "log/", ("PUT",), 0.3)]
    cluster.start(0, 60, settle_ms=1, more=("lost-is-no",))
    cluster.end((0, 75))  # 75: what its last slot became was not known either
    _, bad = cluster.judge()
    assert any(b.startswith("refused but there") for b in bad), bad


def test_a_bucket_that_ignores_some_conditions_is_found(cluster):
    """By the nodes themselves, which stop, and by whoever reads the log."""
    cluster.bucket.faults = [Fault("ignore", "log/", ("PUT",), 0.3)]
    for node in range(3):
        cluster.start(node, 300, trees=2)
    codes = {c.wait(timeout=240 * SLOW) for c in cluster.children.values()}
    assert 65 in codes, cluster.said()
    assert "the bucket let two nodes write the same entry" in cluster.said() or "lost or replaced an entry" in cluster.said()
    assert cluster.count("stopped") > 0
    try:
        log = history.Log(cluster.bucket.under("log/0/"))
    except history.Broken:
        return
    bad = history.findings(log, history.lines_of(cluster.history))
    assert any(b.startswith(("lost", "no prefix", "wrong position")) for b in bad), bad


# --- damage ---

def written(cluster, count=40):
    cluster.start(0, count)
    cluster.end()
    return sorted(k for k in cluster.bucket.objects if k.startswith("prod/log/0/"))


@pytest.mark.parametrize("damage, words", [
    (lambda raw: raw[:50] + bytes([raw[50] ^ 4]) + raw[51:], "checksum does not match"),
    (lambda raw: raw[:100], "these 100 bytes are not an entry"),
    (lambda raw: b"", "these 0 bytes are not an entry"),
    (lambda raw: history.sealed(b"mrdlog02" + raw[8:-32]), "a format of a later version; upgrade this mirror"),
], ids=["bit", "short", "empty", "later"])
def test_a_damaged_entry_stops_a_node(cluster, damage, words):
    key = written(cluster)[5]
    cluster.bucket.objects[key] = (damage(cluster.bucket.objects[key][0]), 0)
    cluster.start(1, 5)
    assert cluster.children[1].wait(timeout=60 * SLOW) in (65, 69)
    assert words in cluster.said() and "log/0/00000000000000000006" in cluster.said()


def test_an_entry_that_was_replaced_by_another(cluster):
    keys = written(cluster)
    cluster.bucket.objects[keys[5]] = cluster.bucket.objects[keys[4]]
    cluster.start(1, 5)
    assert cluster.children[1].wait(timeout=60 * SLOW) == 65
    assert "does not follow the entry before it" in cluster.said()


def test_damage_on_the_way_is_read_again(cluster):
    written(cluster)
    cluster.bucket.faults = [Fault("flip", "log/", ("GET",), 0.05)]
    cluster.start(1, 20)
    cluster.end()
    assert not cluster.judge()[1]


def test_a_bucket_that_is_away(cluster):
    """Nothing is lost, and the outcome of what was under way is settled before anything else."""
    cluster.start(0, 100000, settle_ms=200)
    until(lambda: cluster.count("ok") > 20)
    cluster.bucket.faults = [Fault("cut", "log/", ("PUT",))]
    until(lambda: cluster.count("unknown") > 0)
    before = cluster.count("ok")
    cluster.bucket.faults = []
    until(lambda: cluster.count("ok") > before + 20)
    cluster.children[0].kill()
    cluster.children[0].wait()
    assert not cluster.judge()[1]
