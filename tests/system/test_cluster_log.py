"""The log of a cluster: nodes publish to one bucket that fails in every way that buckets do, are killed and stopped, and what they were told
is judged against what the bucket has (harness/history.py). Three deliberate mistakes must be found: a checker that never finds anything
proves nothing."""
import asyncio
import dataclasses
import hashlib
import random
import signal
import threading
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
    assert sum(bucket.counts.values()) < 200


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


@pytest.mark.parametrize("keys", [".*-create-0", ".*-race-0"])
def test_a_creation_that_was_sent_twice(bucket, tmp_path, keys):
    """libcurl repeats a request whose connection was closed, and then finds the key that it created itself."""
    bucket.faults = [Fault("412-after", keys="probe/" + keys, methods=("PUT",))]
    code, said = probe(bucket, tmp_path)
    assert code == 0, said


def test_one_node(cluster):
    cluster.start(0, 200)
    cluster.end()
    log, bad = cluster.judge()
    assert not bad and cluster.count("ok") == 200 and len(log.position) == 200
    # A commit costs one PUT; a poll costs one GET, which finds nothing. The start costs two lists: of checkpoints, and of entries.
    assert cluster.bucket.counts["PUT", "log"] == log.length
    assert cluster.bucket.counts["GET", "list"] == 2


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
    cluster.end((0, 69, 75))  # not 0: one that ended before that, and whose last look at the end of the log failed
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
    cluster.start_store(0, 400_000, settle_ms=300)
    cluster.start_store(1, 400_000, settle_ms=300)
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
@pytest.mark.parametrize("keys", ["log/0/0+1$", "ckpt/", "ckpt.part/", "log/0/0*[1-9]"])
def test_a_node_that_is_asked_to_end_while_it_starts(cluster, keys):
    written(cluster)
    if keys.startswith("ckpt"):
        cluster.checkpoint()
    cluster.bucket.faults = [Fault("slow", keys, ("GET",), delay=600)]
    at_once = cluster.bucket.at_once
    cluster.start(1, 1)
    until(lambda: cluster.bucket.at_once > at_once)
    cluster.children[1].send_signal(signal.SIGTERM)
    assert cluster.children[1].wait(timeout=60 * SLOW) == 75
    assert "stopped" not in cluster.said() and not restored(cluster)


# --- mistakes that must be found ---

def test_the_mistake_of_taking_a_404_for_a_failure_is_found(cluster):
    """Iceberg and ClickHouse made it: a write whose response was lost is reported as failed, and lands afterwards. One node makes it here:
    nobody takes the slot before the write lands."""
    cluster.bucket.faults = [Fault("500-late", "log/", ("PUT",), 0.3)]
    cluster.start(0, 100, settle_ms=1, more=("lost-is-no",))
    cluster.end((0, 75))  # 75: what its last slot became was not known either
    _, bad = cluster.judge()
    assert any(b.startswith("refused but there") for b in bad), bad


def test_a_bucket_that_ignores_some_conditions_is_found(cluster):
    """By the nodes themselves, which stop, and by whoever reads the log."""
    cluster.bucket.faults = [Fault("ignore", "log/", ("PUT",), 0.3)]
    for node in range(3):
        cluster.start(node, 100000, trees=2)
    until(lambda: cluster.count("stopped"))  # which takes two that write at the same time
    for c in cluster.children.values():
        c.send_signal(signal.SIGTERM)
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

def written(cluster, count=40, node=0):
    cluster.start(node, count)
    cluster.end()
    return sorted(k for k in cluster.bucket.objects if k.startswith("prod/log/0/"))


@pytest.mark.parametrize("damage, words", [
    (lambda raw: raw[:50] + bytes([raw[50] ^ 4]) + raw[51:], "checksum does not match"),
    (lambda raw: raw[:100], "these 100 bytes are not an entry"),
    (lambda raw: b"", "these 0 bytes are not an entry"),
    (lambda raw: history.sealed(b"mrdlog02" + raw[8:-32]), "a format of a later version, mrdlog02; this version of mirrord reads mrdlog01: upgrade this mirror"),
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
    cluster.bucket.faults = [Fault("flip", "log/", ("GET",), first=2)]
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


# --- checkpoints ---

def of(cluster, prefix):
    return [k.removeprefix("prod/") for k, _ in cluster.bucket.under(prefix)]


def last_seq(cluster):
    return int(of(cluster, "log/0/")[-1].rpartition("/")[2])


def age(cluster, seconds=1000):
    """All objects, and not those that are written from now on."""
    for k, (raw, at) in cluster.bucket.objects.items():
        cluster.bucket.objects[k] = (raw, at - seconds)


def restored(cluster, node=None):
    return [o["seq"] for o in history.lines_of(cluster.history) if o["t"] == "restored" and node in (None, o["node"])]


def changed(cluster, key, how):
    raw, at = cluster.bucket.objects["prod/" + key]
    cluster.bucket.objects["prod/" + key] = (how(raw), at)


@pytest.mark.parametrize("part_bytes", [0, 1, 100])
def test_a_checkpoint_stands_for_what_it_covers(cluster, part_bytes):
    """A node that starts with nothing reads no entry that the checkpoint covers."""
    written(cluster)
    covered = last_seq(cluster)
    key = cluster.checkpoint(part_bytes=part_bytes)
    parts = of(cluster, "ckpt.part/")
    assert of(cluster, "ckpt/") == [key] and len(parts) == {0: 1, 1: 5}.get(part_bytes, len(parts)) and (part_bytes != 100 or 1 < len(parts) < 5)
    before = cluster.bucket.counts["GET", "log"]
    cluster.start(1, 1)
    cluster.end()
    assert restored(cluster, 1) == [covered]
    assert cluster.bucket.counts["GET", "log"] - before < 8
    assert not cluster.judge()[1] and last_seq(cluster) == covered + 1


def cut_short(raw):
    return raw[:-1]


def bit_wrong(raw):
    return raw[:60] + bytes([raw[60] ^ 4]) + raw[61:]


@pytest.mark.parametrize("what", ["ckpt/", "ckpt.part/"])
@pytest.mark.parametrize("how", [cut_short, bit_wrong, lambda raw: b"", None])
def test_a_damaged_checkpoint(cluster, what, how):
    """The next older one is used, and the entries after it."""
    written(cluster)
    covered = last_seq(cluster)
    cluster.checkpoint()
    written(cluster, node=2)
    cluster.checkpoint()
    if how is None and what == "ckpt.part/":
        del cluster.bucket.objects["prod/" + of(cluster, what)[0]]
    elif how is not None:
        changed(cluster, of(cluster, what)[0], how)
    else:
        changed(cluster, of(cluster, what)[0], lambda raw: cluster.bucket.objects["prod/" + of(cluster, what)[1]][0])  # the older one's bytes
    cluster.start(1, 1)
    cluster.end()
    assert restored(cluster, 1) == [covered], cluster.said()
    assert not cluster.judge()[1]


def test_a_checkpoint_of_a_later_format(cluster):
    written(cluster)
    cluster.checkpoint()
    changed(cluster, of(cluster, "ckpt/")[0], lambda raw: history.sealed(b"mrdckp02" + raw[8:-32]))
    cluster.start(1, 1)
    assert cluster.children[1].wait(timeout=60 * SLOW) == 69
    assert "a format of a later version, mrdckp02; this version of mirrord reads mrdckp01: upgrade this mirror" in cluster.said()


def test_a_checkpoint_through_a_bucket_that_fails(cluster):
    written(cluster)
    cluster.bucket.faults = [Fault(k, "ckpt", p=0.03) for k in ("500", "503-after", "cut", "cut-after", "429")]
    cluster.bucket.faults += [Fault("truncate", "ckpt", ("GET",), 0.03), Fault("flip", "ckpt", ("GET",), first=2)]
    keys = [cluster.checkpoint(part_bytes=1) for _ in range(5)]
    assert sorted(of(cluster, "ckpt/")) == sorted(keys)
    cluster.start(1, 1)
    cluster.end()
    assert restored(cluster, 1) and not cluster.judge()[1]


# --- the start ---

def test_a_long_log_is_read_ahead(cluster):
    cluster.start(0, 600)
    cluster.end()
    cluster.bucket.faults = [Fault(k, "log/", ("GET",), 0.05, first=2) for k in ("flip", "cut", "500", "truncate")]
    cluster.bucket.faults += [Fault("slow", "log/", ("GET",), delay=0.1)]
    cluster.start(1, 5)
    cluster.end((0, 69, 75))  # not 0: its last look at the end of the log failed
    assert not cluster.judge()[1] and 8 < cluster.bucket.most_at_once <= 32


@pytest.mark.parametrize("fault", ["stale", "500", "truncate"])
def test_a_list_is_only_a_hint(cluster, fault):
    """A list that lacks entries, or fails, makes the start slower and nothing else."""
    written(cluster)
    for k, (raw, _) in cluster.bucket.objects.items():
        cluster.bucket.objects[k] = (raw, time.time() + 3600)  # what a stale list lacks
    if fault == "stale":
        cluster.bucket.faults = [Fault("stale", "$", ("GET",))]
    else:
        cluster.bucket.faults = [Fault(fault, "$", ("GET",), 0.5)]
    cluster.start(1, 5)
    cluster.end()
    assert not cluster.judge()[1] and cluster.count("ok") > 40


def test_a_node_goes_on_where_it_was(cluster, tmp_path):
    state = f"state={tmp_path}/state"
    cluster.start(1, 20, more=(state,))
    cluster.end()
    written(cluster)
    cluster.start(1, 20, more=(state,))
    cluster.end()
    assert not cluster.judge()[1] and cluster.count("ok") == 80


@pytest.mark.parametrize("other", ["another log", "nothing", "a longer log with a checkpoint"])
def test_another_bucket_is_refused(cluster, tmp_path, other):
    state = f"state={tmp_path}/state"
    cluster.start(1, 20, more=(state,))
    cluster.end()
    cluster.bucket.objects.clear()
    cluster.history.write_text("")
    if other != "nothing":
        written(cluster, 100)
    if "checkpoint" in other:
        cluster.checkpoint()
    cluster.start(1, 20, more=(state,))
    assert cluster.children[1].wait(timeout=60 * SLOW) == 65
    assert f"{'does not have' if other == 'nothing' else 'has another'} entry" in cluster.said()
    assert "correct the bucket's address, or start with an empty state" in cluster.said()


@pytest.mark.parametrize("lag", [0, 30])
def test_a_start_after_the_last_entry_was_trimmed(cluster, tmp_path, lag):
    """The checkpoint decides whether it is the same log."""
    state = f"state={tmp_path}/state"
    cluster.start(1, 20, more=(state,))
    cluster.end()
    if lag:
        written(cluster, lag)
    cluster.checkpoint(), cluster.checkpoint()
    end = last_seq(cluster)
    age(cluster)
    assert cluster.trim(10) == end and not of(cluster, "log/0/")
    cluster.start(1, 20, more=(state,))
    cluster.end()
    assert restored(cluster, 1) == ([end] if lag else [])
    assert not cluster.judge()[1] and cluster.count("ok") == 40 + lag


# --- trimming ---

def test_what_is_kept(cluster):
    """Two checkpoints, what follows the older one, and what is young."""
    ends = []
    for node in range(4):
        written(cluster, 20, node=node)
        ends.append(last_seq(cluster))
        cluster.checkpoint(part_bytes=1)
    heads = of(cluster, "ckpt/")
    parts_of_two = [k for k in of(cluster, "ckpt.part/") if k.split("/")[1] in {h.split("/")[1] for h in heads[:2]}]
    cluster.bucket.objects["prod/ckpt.part/" + "1" * 20 + "-0123456789abcdef/00000"] = (b"of a writer that was killed", time.time())
    assert cluster.trim(900) == 0 and len(of(cluster, "log/0/")) == last_seq(cluster), "all is young"
    age(cluster)
    written(cluster, 20, node=4)
    assert cluster.trim(2000) == 0
    assert cluster.trim(10) == ends[2]
    assert [int(k.split("/")[2]) for k in of(cluster, "log/0/")] == list(range(ends[2] + 1, last_seq(cluster) + 1))
    assert of(cluster, "ckpt/") == heads[:2] and of(cluster, "ckpt.part/") == parts_of_two
    assert cluster.trim(10) == 0
    cluster.start(5, 1)
    cluster.end()
    assert not cluster.judge()[1] and restored(cluster, 5) == [ends[3]]


def test_a_checkpoint_counts_only_if_it_is_old_and_whole(cluster):
    written(cluster)
    cluster.checkpoint()
    age(cluster)
    cluster.checkpoint()
    cluster.bucket.objects.update({k: (raw, time.time()) for k, (raw, _) in cluster.bucket.objects.items() if not k.startswith("prod/log")})
    assert cluster.trim(900) == 0, "the entries are old, and the checkpoints are not"
    age(cluster)
    for part in of(cluster, "ckpt.part/"):
        changed(cluster, part, bit_wrong)
    assert cluster.trim(10) == 0
    cluster.start(1, 1)
    assert cluster.children[1].wait(timeout=60 * SLOW) == 65
    assert "may have been trimmed, and what covers it cannot be read" in cluster.said()


def test_trimming_in_parts(cluster):
    """A trim that fails is continued by the next one."""
    written(cluster, 60)
    end = last_seq(cluster)
    cluster.checkpoint(), cluster.checkpoint()
    age(cluster)
    cluster.bucket.faults = [Fault("503", "log/", ("DELETE",), 0.2), Fault("cut-after", "log/", ("DELETE",), 0.1)]
    until(lambda: cluster.run("trim", 10)[0] == 0)
    assert not of(cluster, "log/0/")
    cluster.bucket.faults = []
    cluster.start(1, 5)
    cluster.end()
    assert not cluster.judge()[1] and restored(cluster, 1) == [end]


# --- a node that was paused while its slot was trimmed ---

def pause(cluster, node, how, tmp_path):
    """At a moment when it has nothing under way, or at any."""
    wait = tmp_path / "wait"
    if how == "between":
        wait.touch()
        until(lambda: any(o["t"] == "waits" and o["node"] == node for o in history.lines_of(cluster.history)))
    cluster.children[node].send_signal(signal.SIGSTOP)
    if how == "between":
        wait.unlink()


def go_on_without(cluster, seconds=4):
    """The others publish, and trim all that they have written; the bucket's clock moves on."""
    for node in (7, 8):
        written(cluster, 30, node=node)
    cluster.checkpoint(), cluster.checkpoint()
    age(cluster)
    until(lambda: cluster.trim(2) > 0)
    cluster.bucket.clock_ahead += seconds
    assert not of(cluster, "log/0/")


@pytest.mark.parametrize("how, dated", [("between", True), ("anywhere", True), ("between", False)])
def test_a_node_that_was_paused_until_its_slot_was_trimmed(cluster, tmp_path, how, dated):
    """Without a clock of the bucket, a node looks for a checkpoint each time."""
    cluster.bucket.dated = dated
    cluster.start(1, 100000, more=(f"gate={1 if dated else 3600}", f"wait={tmp_path}/wait"))
    until(lambda: cluster.count("ok") > 20)
    pause(cluster, 1, how, tmp_path)
    paused = cluster.children.pop(1)
    cluster.bucket.dated = True
    go_on_without(cluster)
    cluster.bucket.dated = dated
    before = cluster.count("ok")
    cluster.children[1] = paused
    paused.send_signal(signal.SIGCONT)
    until(lambda: cluster.count("ok") > before + 20)
    paused.send_signal(signal.SIGTERM)
    cluster.end((0, 75))
    assert len(restored(cluster, 1)) == 1
    assert not cluster.judge()[1], cluster.said()


def test_the_mistake_of_believing_a_slot_that_was_trimmed_is_found(cluster, tmp_path):
    cluster.start(1, 100000, more=("gate=never", f"wait={tmp_path}/wait"))
    until(lambda: cluster.count("ok") > 20)
    pause(cluster, 1, "between", tmp_path)
    paused = cluster.children.pop(1)
    go_on_without(cluster)
    before = cluster.count("ok")
    cluster.children[1] = paused
    paused.send_signal(signal.SIGCONT)
    until(lambda: cluster.count("ok") > before + 20)
    paused.kill()
    paused.wait()
    try:
        bad = cluster.judge()[1]
    except history.Broken:  # it went on beyond what was trimmed
        return
    assert any(b.startswith("lost") for b in bad)


@pytest.mark.parametrize("kind, landed", [("cut-after", True), ("500-late", True), ("cut", False), ("500", False)])
def test_the_checkpoint_says_what_became_of_a_commit(cluster, tmp_path, kind, landed):
    """A node that is paused with an open slot, which is trimmed, learns from the list of last commits whether its entry was applied."""
    cluster.start(1, 100000, settle_ms=3600 * 1000, more=("gate=1",))
    until(lambda: cluster.count("ok") > 20)
    strikes = threading.Event()
    cluster.bucket.faults = [Fault(kind, "log/", ("PUT",), struck=strikes), Fault("cut-there", "log/", ("GET",))]
    assert strikes.wait(120 * SLOW)
    cluster.children[1].send_signal(signal.SIGSTOP)
    paused = cluster.children.pop(1)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0.3), cluster.bucket.loop).result()  # by the bucket's own clock, what is late has landed
    cluster.bucket.faults = []
    lines = history.lines_of(cluster.history)
    said = {o["v"] for o in lines if o["t"] in ("ok", "no", "unknown")}
    open_ones = [o["v"] for o in lines if o["t"] == "inv" and o["v"] not in said]
    go_on_without(cluster)
    before = cluster.count("ok")
    cluster.children[1] = paused
    paused.send_signal(signal.SIGCONT)
    until(lambda: cluster.count("ok") > before + 20)
    paused.send_signal(signal.SIGTERM)
    cluster.end((0, 75))
    log, bad = cluster.judge()
    assert not bad and len(restored(cluster, 1)) == 1, (bad, cluster.said())
    became = {o["v"]: o["t"] for o in history.lines_of(cluster.history) if o["t"] in ("ok", "no", "unknown")}
    assert not landed or all(became[v] == "ok" and v in log.position for v in open_ones), (open_ones, became)
    assert all(became[v] != "unknown" for v in open_ones)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_log_that_is_trimmed_all_the_time(cluster, seed):
    """Nodes write checkpoints and trim within seconds, are killed, and are stopped for longer than anything is kept."""
    dice = random.Random(seed)
    more = ("gate=1", "trim=2", "checkpoint=10")

    def goes_on(node):
        """Until it has come through its start, or a pause: what it was about to read then must not be trimmed before it reads that."""
        def lines():
            return sum(o["node"] == node for o in history.lines_of(cluster.history))
        until(lambda before=lines(): lines() > before)
    cluster.bucket.faults = list(UNSURE)
    for node in range(4):
        cluster.start(node, 100000, settle_ms=2000, more=more)
    for turn in range(10):
        node = dice.randrange(4)
        if dice.random() < 0.4:
            cluster.children[node].kill()
            cluster.children[node].wait()
            cluster.start(node, 100000, settle_ms=2000, more=more)
            time.sleep(dice.uniform(0.1, 0.6))
        else:
            goes_on(node)
            cluster.children[node].send_signal(signal.SIGSTOP)
            time.sleep(dice.choice([0.3, 1, 5]))
            cluster.children[node].send_signal(signal.SIGCONT)
    until(lambda: cluster.count("ok") > 50 and any(k.startswith("prod/log/0/") for k in cluster.bucket.deleted))
    cluster.stop()
    cluster.bucket.faults = []
    cluster.start(9, 1)
    assert cluster.children.pop(9).wait(timeout=120 * SLOW) == 0, cluster.said()
    _, bad = cluster.judge()
    assert not bad and restored(cluster, 9), (bad, cluster.said())


# --- an entry that is declared void ---

def declare_void(cluster, seq, damaged, before):
    cluster.bucket.objects[f"prod/void/0/{seq:020}"] = (f"{hashlib.sha256(damaged).hexdigest()} {before.hex()}\n".encode(), time.time())


def torn(cluster):
    """A damaged entry that no node has applied is the last one."""
    written(cluster)
    seq = last_seq(cluster) + 1
    cluster.bucket.objects[f"prod/log/0/{seq:020}"] = (b"mrdlog01 and then nothing", time.time())
    return seq, b"mrdlog01 and then nothing"


def test_an_entry_that_is_declared_void(cluster):
    seq, damaged = torn(cluster)
    declare_void(cluster, seq, damaged, bytes(range(32)))
    for node in (1, 2):
        cluster.start(node, 30)
    cluster.end()
    log, bad = cluster.judge(void={seq: bytes(range(32))})
    assert not bad and log.length > seq + 10 and cluster.count("ok") > 60


@pytest.mark.parametrize("word", [b"", b"void", b"0" * 64 + b" " + b"1" * 64, b"1" * 1000, None])
def test_a_word_that_does_not_name_the_damage(cluster, word):
    seq, damaged = torn(cluster)
    declare_void(cluster, seq, damaged, bytes(32))
    if word is None:
        changed(cluster, f"log/0/{seq:020}", lambda raw: raw + b"!")
    else:
        changed(cluster, f"void/0/{seq:020}", lambda _: word)
    cluster.start(1, 1)
    assert cluster.children[1].wait(timeout=60 * SLOW) == 65
    assert "does not name the bytes of the damaged entry" in cluster.said()


def test_a_word_about_an_entry_that_can_be_read_is_ignored(cluster):
    written(cluster)
    cluster.bucket.objects[f"prod/void/0/{3:020}"] = (b"no", time.time())
    cluster.start(1, 5)
    cluster.end()
    assert not cluster.judge()[1] and ("GET", "void") not in cluster.bucket.counts


def test_a_node_that_has_the_lost_rows_stops(cluster, tmp_path):
    """Where an entry was declared void although a node had applied it, that node does not go on with rows that the others lack."""
    state = f"state={tmp_path}/state"
    cluster.start(1, 20, more=(state,))
    cluster.end()
    seq, damaged = last_seq(cluster), b"damaged"
    changed(cluster, f"log/0/{seq:020}", lambda _: damaged)
    declare_void(cluster, seq, damaged, bytes(range(32)))
    cluster.start(2, 20)
    cluster.end()
    cluster.start(1, 20, more=(state,))
    assert cluster.children[1].wait(timeout=60 * SLOW) == 65
    assert "does not follow the entry before it" in cluster.said()


def test_a_checkpoint_heals_a_damaged_entry(cluster, tmp_path):
    """A node that has applied it writes the checkpoint; the others pass over the entry."""
    state = f"state={tmp_path}/state"
    written(cluster)
    seq = last_seq(cluster)
    cluster.start(1, 4, more=(state, "checkpoint=1"))
    cluster.end()
    changed(cluster, f"log/0/{seq:020}", bit_wrong)
    cluster.start(2, 5)
    cluster.end()
    assert restored(cluster, 2)
