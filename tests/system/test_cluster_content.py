"""How content gets into a cluster's bucket and back: what was reported as uploaded is read by another process, byte for byte, whatever the
bucket did meanwhile; what was not is never named by an index."""
import os
import random
import signal
import time

import pytest

from harness.bucket import Bucket, Fault
from harness.cluster_content import MIB, Content, words
from harness.mirrord import SLOW, until

WRITES = ("PUT", "POST")
NOISE = os.urandom(72 * MIB)
TEXT_AT = len(NOISE)
DATA = NOISE + words(8 * MIB)

SMALL = [("blob", 0, 0), ("blob", 10, 1), ("blob", 0, 5000), ("node", 0, 5000), ("blob", TEXT_AT, MIB - 1), ("blob", 5, MIB - 1),
         ("chunks", 0, 9 * MIB), *(("node", TEXT_AT + 7000 * i, 9000) for i in range(200)), *(("blob", 3 * i, 40000 + i) for i in range(600))]
LARGE = [("blob", 0, MIB), ("blob", TEXT_AT, 3 * MIB), ("blob", MIB, 20 * MIB), ("node", TEXT_AT, 2 * MIB + 1), ("blob", 0, 64 * MIB + 1)]
LARGER = [("blob", 1, 64 * MIB), ("blob", 3, 70 * MIB)]
MANY = [("blob", 997 * i, 30000) for i in range(2000)]  # four packs


@pytest.fixture
def bucket():
    with Bucket() as b:
        yield b


@pytest.fixture
def content(bucket, tmp_path):
    return Content(bucket, tmp_path, DATA)


def check_all_there(content, result, items):
    assert result.code == 0, result
    content.bucket.faults = []
    done, files = content.fetch(result.index)
    assert done.code == 0, done
    assert files == content.expected(items)


def keys(bucket, prefix):
    return [k for k, _ in bucket.under(prefix)]


# --- a bucket that works ---

def test_what_is_uploaded_is_read(content, bucket):
    items = SMALL + LARGE + LARGER
    result = content.upload(items + items[:50])
    check_all_there(content, result, items)
    assert len(result.index) == 1 and result.figure["skipped"] == 50
    assert result.figure["objects"] == len(keys(bucket, "pack/")) + len(keys(bucket, "blob/"))
    assert len(keys(bucket, "blob/")) == len(LARGE + LARGER) and not bucket.uploads
    # Two objects in two parts each, and no request more than needed.
    assert bucket.counts["PUT", "blob"] == len(LARGE + LARGER) + 2 and bucket.counts["POST", "blob"] == 4
    assert ("DELETE", "blob") not in bucket.counts


def test_what_has_a_place_is_skipped(content, bucket):
    first = content.upload(SMALL)
    before = sum(bucket.counts.values())
    again = content.upload(SMALL, "known", first.index[0])
    assert again.code == 0 and again.index == [] and again.figure["objects"] == 0, again
    assert sum(bucket.counts.values()) == before + 1, "only the index was read"
    # The same bytes under another kind are another item.
    more = content.upload([*SMALL, ("node", 10, 1), ("blob", 10, 2)], "known", first.index[0])
    assert more.figure["items"] == 2 and more.figure["skipped"] == len(SMALL), more
    check_all_there(content, more, [("node", 10, 1), ("blob", 10, 2)])


def test_nothing_to_upload(content, bucket):
    result = content.upload([])
    assert result.code == 0 and result.index == [] and not bucket.counts, result


def test_what_small_files_cost(content, bucket):
    """A pack has 1,638 items of 10 KiB."""
    items = [("blob", 10240 * i, 10240) for i in range(6552)]
    result = content.upload(items)
    assert result.code == 0 and bucket.counts == {("PUT", "pack"): 4, ("PUT", "idx"): 1}, (result, bucket.counts)
    assert all(len(body) <= (16 * MIB) + (128 << 10) for _, body in bucket.under("pack/"))
    if SLOW == 1:
        assert result.figure["peak_kb"] < 160000, result


def test_more_items_than_an_index_has_rows(content, bucket):
    """A second index follows; a pack has at most 65,536 items."""
    items = [("blob", i, 40) for i in range(270000)]
    result = content.upload(items)
    assert result.code == 0 and len(result.index) == 2 and bucket.counts == {("PUT", "pack"): 5, ("PUT", "idx"): 2}, (result, bucket.counts)
    again = content.upload(items, "known", result.index[0], "known", result.index[1])
    assert again.code == 0 and again.index == [] and again.figure["skipped"] == len(items), again


# --- a bucket that fails ---

@pytest.mark.parametrize("kinds", [("503", "429"), ("503-after", "500-after"), ("cut",), ("cut-after",), ("late",), ("500-late", "409"), ("404",)],
                         ids="-".join)
def test_failures_that_pass(content, bucket, kinds):
    bucket.faults = [Fault(k, methods=WRITES, p=0.25) for k in kinds]
    items = SMALL + LARGE + MANY[:1200]
    check_all_there(content, content.upload(items), items)


def test_a_slow_bucket(content, bucket):
    bucket.faults = [Fault("slow", methods=WRITES, delay=0.3)]
    items = SMALL + LARGE[:4]
    check_all_there(content, content.upload(items), items)


@pytest.mark.parametrize("fault, code, text", [
    (Fault("full", "pack/", WRITES), 73, "no space left"),
    (Fault("full", "blob/", WRITES), 73, "no space left"),
    (Fault("full", "idx/", WRITES), 73, "no space left"),
    (Fault("read-only", methods=WRITES), 77, "does not permit"),
    (Fault("503", "pack/", WRITES), 75, "temporarily unavailable"),
    (Fault("503-after", "idx/", WRITES), 75, ""),
    (Fault("cut", "blob/", WRITES), 69, ""),
], ids=lambda v: f"{v.kind}-{v.keys}" if isinstance(v, Fault) else "")
def test_failures_that_stay(content, bucket, fault, code, text):
    """The upload fails, nothing is deleted, and it succeeds later."""
    bucket.faults = [fault]
    items = SMALL + LARGE
    if fault.kind == "503-after":  # what was written can be read, so that is no failure
        check_all_there(content, content.upload(items, "retry-ms", 300), items)
        return
    result = content.upload(items, "retry-ms", 300)
    assert result.code == code and text in result.errors and result.index == [], result
    assert fault.keys == "pack/" or not keys(bucket, "idx/")
    assert sum(n for (method, _), n in bucket.counts.items() if method == "DELETE") <= 1, "only the parts of one object are discarded"
    bucket.faults = []
    check_all_there(content, content.upload(items), items)


def test_the_bucket_forgets_an_upload_in_parts(content, bucket):
    bucket.faults = [Fault("slow", "blob/", ("PUT",), delay=3)]  # it is not complete before
    child = content.start([("blob", 3, 70 * MIB)], "retry-ms", "1000")
    while not bucket.uploads:
        assert child.poll() is None
        time.sleep(0.01)
    bucket.uploads.clear()
    _, said = child.communicate(timeout=60 * SLOW)
    assert child.returncode == 66 and "E_NOTFOUND" in said, said


# --- wrong bytes ---

@pytest.mark.parametrize("item", [("wrong", 0, 100), ("wrong", TEXT_AT, 10000), ("wrong", 0, 2 * MIB), ("wrong", 0, 70 * MIB)],
                         ids=lambda i: str(i[2]))
def test_an_item_that_does_not_match_its_digest(content, bucket, item):
    result = content.upload([*SMALL, item])
    assert result.code == 65 and "do not match its SHA-256" in result.errors and not keys(bucket, "idx/") and not bucket.uploads, result


@pytest.mark.parametrize("what", ["pack/", "blob/", "idx/"])
def test_a_bucket_that_does_not_check_what_it_gets(content, bucket, what):
    """Then everything is read back; without that the damage would be found only later."""
    bucket.checks_bodies, items = False, SMALL + LARGE
    result = content.upload(items, "read-back")
    check_all_there(content, result, items)
    bucket.faults = [Fault("flip", methods=("GET",), p=0.1)]  # damage on the way back is read again
    assert content.upload(SMALL, "read-back").code in (0, 65)
    bucket.faults = [Fault("damage", what, ("PUT",))]
    result = content.upload(items, "read-back")
    assert result.code == 65 and "other bytes than those uploaded" in result.errors, result
    late = content.upload(items)
    bucket.faults = []
    assert late.code == 0 and content.fetch(late.index)[0].code == 65


def test_damage_on_the_way_is_read_again(content, bucket):
    items = SMALL + LARGE
    result = content.upload(items)
    bucket.faults = [Fault(k, "(pack|blob)/", ("GET",), 0.03) for k in ("truncate", "503", "cut", "404")]
    done, files = content.fetch(result.index)
    assert done.code == 0 and files == content.expected(items), done
    flips = iter([True, False] * 10000)
    bucket.fault_of = lambda r: ("flip", 0) if "blob/" in r.key and next(flips) else (None, 0)
    large = content.upload([("blob", 0, 2 * MIB), ("node", TEXT_AT, 3 * MIB), ("blob", 0, 5 * MIB)])
    done, files = content.fetch(large.index)
    assert done.code == 0 and files == content.expected([("blob", 0, 2 * MIB), ("node", TEXT_AT, 3 * MIB), ("blob", 0, 5 * MIB)]), done


@pytest.mark.parametrize("kind, items", [("pack/", SMALL[1:4]), ("blob/", LARGE[:1]), ("blob/", [("blob", 3, 70 * MIB)])],
                         ids=["pack", "blob", "parts"])
@pytest.mark.parametrize("damage, code", [(lambda b: bytes([b[0] ^ 1]) + b[1:], 65), (lambda b: b[:-300], 65), (lambda b: None, 66)],
                         ids=["bit", "short", "gone"])
def test_damage_in_the_bucket(content, bucket, kind, items, damage, code):
    result = content.upload(items)
    for key in keys(bucket, kind):
        body = damage(bucket.objects[key][0])
        if body is None:
            del bucket.objects[key]
        else:
            bucket.objects[key] = (body, 0)
    done, files = content.fetch(result.index, "retry-ms", 200)
    assert done.code == code and (code != 65 or "is damaged" in done.errors), done
    # The last bytes of an item come only if all are right.
    complete = content.expected(items).items() & files.items()
    assert len(complete) < len(items)


# --- the process ends ---

@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_process_that_is_killed(content, bucket, seed):
    """At any instant: what it leaves is orphaned, and every index that it has reported can be read."""
    dice, items = random.Random(seed), MANY + LARGE[:3] + LARGE[4:]
    for _ in range(6):
        bucket.faults = [Fault("slow", methods=WRITES, delay=0.05)]
        child = content.start(items)
        time.sleep(dice.uniform(0, 0.8))
        child.kill()
        out, _ = child.communicate()
        bucket.faults = []
        done, files = content.fetch([line[4:] for line in out.splitlines() if line.startswith("idx ")])
        assert done.code == 0 and set(files) <= set(content.expected(items)), done
    check_all_there(content, content.upload(items), items)


def test_the_index_comes_last(content, bucket):
    """But for the last pack, which is written at the same time."""
    bucket.faults = [Fault("slow", "(pack|blob)/", WRITES, delay=0.5)]
    result = content.upload(MANY[:1400] + LARGE)
    made = list(bucket.objects)
    assert result.code == 0 and f"prod/idx/{result.index[0]}" in made[-2:], (result, made)
    assert made[-1].startswith(("prod/idx/", "prod/pack/")) and sum(k.startswith("prod/pack/") for k in made) > 1, made


@pytest.mark.parametrize("held, other", [("pack/", "idx/"), ("idx/", "pack/")])
def test_a_small_upload_takes_one_round_trip(content, bucket, held, other):
    """Neither of the two is answered before both have been sent."""
    bucket.faults = [Fault("slow", held, WRITES, delay=3600)]
    child = content.start(SMALL[:3])
    until(lambda: keys(bucket, other))
    assert not keys(bucket, held)
    child.kill()
    child.communicate()
    bucket.faults = []
    assert content.upload(SMALL[:3]).code == 0 and keys(bucket, held) and keys(bucket, other)


def test_an_upload_that_is_interrupted(content, bucket):
    bucket.faults = [Fault("slow", methods=WRITES, delay=5)]  # it does not end before it hears of the signal
    child = content.start(MANY + LARGE)
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=60 * SLOW)
    assert child.returncode == 75 and "was interrupted" in said and not keys(bucket, "idx/"), said


def test_an_upload_that_is_interrupted_while_the_bucket_is_away(content, bucket):
    bucket.faults = [Fault("cut", methods=WRITES)]
    child = content.start(MANY, "retry-ms", 600000)
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=60 * SLOW)
    assert child.returncode == 75 and "was interrupted" in said, said
