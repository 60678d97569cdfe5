"""What mirrors over one bucket did wrong once. Each docstring says what happened."""
import concurrent.futures
import hashlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from harness.bucket import Fault
from harness.image import MANIFEST, Image, digest
from harness.mirrord import until
from system.test_cluster import bucket, has, learned, node, seen  # noqa: F401  (fixtures)


def one_after_the_other(bucket, first, second):
    """Both write the same slot of the log: `first` gets it, `second` reads that entry and then writes its own."""
    bucket.faults = [Fault("slow", "log/0/", ("PUT",), delay=0.5)]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(first)
        time.sleep(0.25)
        mine = second()
        other.result()
    bucket.faults = []
    return mine


def test_two_mirrors_create_tokens_at_once(node, bucket):
    """gate_reload_tokens() frees a token that token_create() has put into the list and is still committing: the new token is refused
    on the mirror that made it, and token_create() writes to freed memory if its commit fails."""
    a, b = node(), node()
    token = one_after_the_other(bucket, lambda: b.token("theirs", "publish:models/*"), lambda: a.token("mine", "publish:models/*"))
    assert a.put("/models/me/gpt/x", b"x", token=token).status == 201


def test_a_token_that_is_revoked_while_another_mirror_creates_one(node, bucket):
    """gate_reload_tokens() reads the row of a token whose revocation is being committed: the token stays valid on the mirror that
    revoked it, after `token revoke` has said that it is done."""
    a, b = node(), node()
    token = a.token("ci", "publish:models/*")
    seen_by_b = lambda: b.put("/models/me/gpt/x", b"x", token=token).status in (200, 201)  # noqa: E731
    while not seen_by_b():
        time.sleep(0.05)
    one_after_the_other(bucket, lambda: b.token("theirs", "publish:models/*"), lambda: a.ctl("token", "revoke", "ci"))
    assert a.put("/models/me/gpt/y", b"y", token=token).status == 401


def test_what_was_collected_on_one_mirror_and_is_published_again_on_another(node):
    """A collection deletes nodes of trees on one mirror, and every mirror keeps their places: the walk of a publish takes what has a
    place for known to all, so the mirror that has collected them never gets them again, and its tree cannot be read."""
    a, b = node(), node()
    token = a.token("ci", "publish:models/*")
    assert a.put("/models/me/gpt/x", b"one", token=token).status == 201
    assert a.put("/models/me/gpt/x", b"two", token=token).status in (200, 201)
    a.ctl("snapshot", "rm", "models", "me/gpt", "v1")
    seen(b, "/models/me/gpt/x", b"two")
    while len(b.ctl_json("snapshot", "ls", "models", "me/gpt")) != 1:
        time.sleep(0.05)
    time.sleep(1.1)  # times of nodes are in seconds
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(120)
        line.connect(str(b.socket))
        line.sendall(b'{"verb": "cache.gc", "grace_s": 0}\n')  # as after an hour
        line.makefile().readline()
    assert a.put("/models/me/gpt/x", b"one", token=token).status in (200, 201)
    assert has(a, "/models/me/gpt/x", b"one")
    seen(b, "/models/me/gpt/x", b"one")


def test_an_image_that_was_pushed_to_another_mirror(node):
    """A manifest's type is read from TABLE_INLINE, and a blob's path asks for rows of TABLE_HOLDER and TABLE_BLOB, which a mirror has
    only of what it was given itself: a pull from any other mirror ends with 404 MANIFEST_UNKNOWN."""
    a, b = node(), node()
    image = Image(a, token=a.token("ci", "publish:models/*"))
    layers = [os.urandom(2_000_000), b"small"]
    data = image.push("v1", layers)
    other = Image(b, token="anonymous")
    until(lambda: other.get("tags/list").status == 200)
    assert other.get("manifests/v1", Accept=MANIFEST).body == data
    for layer in layers:
        got = other.get(f"blobs/{digest(layer)}")
        assert (got.status, got.body) == (200, layer), got.body[:200]


def test_an_image_whose_layer_was_evicted(node):
    """Likewise on the one mirror that has it: the eviction takes the row of TABLE_BLOB, and the pull ends with 404."""
    a = node(conf='storage { quota = "24m" high = "80%" low = "50%" reserve = "1m" }')
    token = a.token("ci", "publish:models/*")
    layers = [os.urandom(3_000_000) for _ in range(10)]  # more than fit
    for i, layer in enumerate(layers):
        Image(a, token=token).push(f"v{i}", [layer])
    for layer in layers:
        got = Image(a, token="anonymous").get(f"blobs/{digest(layer)}")
        assert (got.status, got.body) == (200, layer), got.body[:200]


def test_a_chunk_list_on_another_mirror(node):
    """A response names </-/chunks/HEX>, and right_to_digest() finds no holder on a mirror that did not take the upload: 404."""
    a, b = node(), node()
    token = a.token("ci", "publish:models/*")
    data = os.urandom(10 << 20)
    assert a.put("/models/me/gpt/x", data, token=token).status == 201
    seen(b, "/models/me/gpt/x", data)
    path = f"/-/chunks/{hashlib.sha256(data).hexdigest()}"
    assert a.get(path).status == 200
    assert b.get(path).status == 200


def test_a_tree_gets_a_new_name_on_another_mirror(node):
    """A rename puts a row of TABLE_HOLDER for every file, and the store refuses one for a blob that is only in the bucket: E_CHANGED
    for ever on a mirror that lacks one of the files."""
    a, b = node(), node()
    token = a.token("ci", "publish:models/*")
    assert a.put("/models/me/gpt/x", b"x" * 5000, token=token).status == 201
    until_known(b, token)
    got = b.put("/models/api/repos/move", json.dumps({"fromRepo": "me/gpt", "toRepo": "me/new"}).encode(), token=token, method="POST")
    assert got.status == 200, got.body
    assert has(b, "/models/me/new/x", b"x" * 5000)


def until_known(b, token):
    while b.put("/models/me/other/x", b"x", token=token).status not in (200, 201):
        time.sleep(0.05)


def test_what_is_here_is_served_while_others_wait_for_the_bucket(node, bucket):
    """Four threads open all files of trees, and each waits up to 30 s for the bucket: requests of two clients for files that are
    elsewhere stop a third one's for files that are here."""
    a = node()
    token, second = a.token("ci", "publish:models/*"), a.token("second", "read:*")
    for i in range(16):
        assert a.put(f"/models/me/set/{i}", os.urandom(20_000), token=token).status == 201
    b = node()
    until_known(b, token)
    bucket.faults = [Fault("cut", "pack/", ("GET",))]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(b.put, f"/models/me/set/{i}", None, token=(token, second)[i % 2], method="GET") for i in range(16)]
        time.sleep(1)
        assert has(b, "/models/me/other/x", b"x")
        over = [w.done() for w in waiting]
        bucket.faults = []
    assert not any(over), "a file that is here was served only after those that are not"


def test_what_is_here_is_read_without_the_log(node, bucket):
    """Although the log has not been read for stale_after, so what the mirror knows of the bucket may have ended: nobody waits for the
    log on account of files that are on the disk."""
    a = node('stale_after = "1s"', poll="60s")
    token = a.token("ci", "publish:models/*")
    files = {f"/models/me/set/{i}": os.urandom(20_000) for i in range(40)}
    for path, data in files.items():
        assert a.put(path, data, token=token).status == 201
    until(lambda: a.metric("mirrord_cluster_lag_seconds") > 1)
    reads = bucket.counts["GET", "log"]
    for path, data in files.items():
        assert has(a, path, data)
    assert bucket.counts["GET", "log"] == reads


def test_nodes_that_died_do_not_hide_those_that_live(node, bucket):
    """The list of nodes is cut at 64 keys before the dead ones are left out, and nobody deletes those: after 64 lost nodes the living
    ones do not find each other, and tell each other nothing."""
    for i in range(70):
        bucket.objects[f"prod/node/{i:032x}"] = (b'{"address": "", "version": "0", "applied": 0}', time.time() - 3600)
    a, b = node('poll = "60s"', poll=None), node('poll = "60s"', poll=None)
    until(lambda: sum(k.startswith("prod/node/") for k in bucket.objects) == 72)
    beats = bucket.counts["PUT", "node"]
    until(lambda: bucket.counts["PUT", "node"] >= beats + 4)
    token, numbers = a.token("ci", "publish:models/*"), itertools.count()

    def tells():
        data = str(next(numbers)).encode()
        assert a.put("/models/me/gpt/x", data, token=token).status in (200, 201)
        return has(b, "/models/me/gpt/x", data)
    until(tells)  # not at once if b took more than 250 ms for an entry: it is then left out for ten seconds


def in_doubt(bucket, commit):
    """The commit lands in the log, and the bucket does not say so until its caller has an answer."""
    bucket.faults = [Fault("503-after", "log/0/", ("PUT",)), Fault("503", "log/0/", ("GET",))]
    said = commit()
    bucket.faults = []
    return said


def test_a_publish_whose_outcome_was_unknown_is_seen_where_it_was_made(node, bucket):
    """An own entry that is applied after its callers were told that its outcome is unknown is not reported (on_row): the mirror goes
    on serving the version before from its memory, while all others have the new one."""
    a, b = node(), node()
    token = a.token("ci", "publish:models/*")
    assert a.put("/models/me/gpt/x", b"one", token=token).status == 201
    for _ in range(3):
        assert has(a, "/models/me/gpt/x", b"one")
    assert in_doubt(bucket, lambda: a.put("/models/me/gpt/x", b"two", token=token)).status == 503
    seen(b, "/models/me/gpt/x", b"two")
    until(lambda: len(a.ctl_json("snapshot", "ls", "models", "me/gpt")) == 2)
    seen(a, "/models/me/gpt/x", b"two")  # which it is told once the row is there


def test_a_revocation_whose_outcome_was_unknown_counts_where_it_was_made(node, bucket):
    """Likewise: the revocation is in the log, all other mirrors refuse the token, and the one that revoked it takes it."""
    a, b = node(), node()
    token = a.token("ci", "publish:models/*")
    until_known(b, token)
    seen(a, "/models/me/other/x", b"x")
    assert in_doubt(bucket, lambda: a.ctl("token", "revoke", "ci", check=False)).returncode != 0
    until(lambda: b.put("/models/me/gpt/x", b"x", token=token).status == 401)
    until(lambda: a.put("/models/me/gpt/x", b"x", token=token).status != 503)
    time.sleep(0.5)
    assert a.put("/models/me/gpt/x", b"x", token=token).status == 401


def test_a_bucket_that_refuses_this_mirror_does_not_refuse_its_clients(node, bucket):
    """A 403 of the bucket, whose keys were changed, is the error of whoever reads or publishes: 403, as if it was their token. Clients
    do not try again, and nothing is known of the file that they may read."""
    a = node()
    token = a.token("ci", "publish:models/*")
    assert a.put("/models/me/gpt/x", b"x" * 5000, token=token).status == 201
    b = node()
    bucket.faults = [Fault("read-only", "pack/", ("GET", "PUT"))]
    said = b.get("/models/me/gpt/x").status, a.put("/models/me/gpt/y", b"y" * 5000, token=token).status
    assert said == (503, 503)


def test_two_mirrors_create_tokens_of_one_name(node, bucket):
    """Each looked for the name among the tokens that it knew, so both were created, and `token revoke` ended one of them: the other one
    remained good, under a name that was said to be revoked."""
    a, b = node(), node()
    made, refused = [], []

    def create(m):
        done = m.ctl("token", "create", "--name", "ci", "--scope", "publish:models/*", check=False)
        (made if done.returncode == 0 else refused).append(done)
    one_after_the_other(bucket, lambda: create(b), lambda: create(a))
    assert len(made) == 1 and refused[0].returncode == 73 and 'a token "ci" exists already' in refused[0].stderr, refused
    token = re.search(r"mrd_\w+", made[0].stdout)[0]
    for m in (a, b):
        until_known(m, token)
    a.ctl("token", "revoke", "ci")
    for m in (a, b):
        until(lambda: m.put("/models/me/other/x", b"x", token=token).status == 401)  # noqa: B023


def test_a_token_that_was_replaced_on_another_mirror_is_revoked(node):
    """The revocation deleted the row of the token that this mirror knew under the name. That was gone already, the one that has the name now
    remained good, and `token revoke` said that it was done."""
    a, b = node(poll="60s"), node(poll="60s")
    a.token("ci", "publish:models/*")
    b.stop()
    b.start()
    b.ctl("token", "revoke", "ci")
    token = b.token("ci", "publish:models/*")
    a.ctl("token", "revoke", "ci")
    learned(lambda: b.ctl("token", "create", "--name", "ci", "--scope", "read:*", check=False).returncode == 0)  # the name is free
    assert b.put("/models/me/other/x", b"x", token=token).status == 401


def test_a_token_that_is_not_known_yet_is_revoked(node):
    """A mirror that had not read of a token said that there was none, and the token remained good."""
    a, b = node(poll="60s"), node(poll="60s")
    token = b.token("ci", "publish:models/*")
    learned(lambda: a.ctl("token", "revoke", "ci", check=False).returncode == 0)
    b.token("other", "read:*")  # reads the log
    assert b.put("/models/me/other/x", b"x", token=token).status == 401
    assert a.ctl("token", "revoke", "ci", check=False).returncode == 66


def test_a_revoked_token_on_a_machine_that_has_just_booted(node, bucket):
    """The time since a mirror has last seen the end of the log was counted from the machine's boot if it had not seen it yet. So one that
    came up with its machine, and could not reach the bucket, accepted for stale_after every token that was revoked while it was off."""
    just_booted = ["unshare", "--time", "--boottime", f"-{int(time.clock_gettime(time.CLOCK_BOOTTIME)) - 5}"]
    if subprocess.run([*just_booted, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("cannot make a time namespace")
    a, b = node(), node()
    token = a.token("ci", "publish:models/*")
    until_known(b, token)
    b.stop()
    a.ctl("token", "revoke", "ci")
    a.stop()
    bucket.faults = [Fault("cut")]
    b.command = just_booted
    b.start()
    assert b.put("/models/me/other/x", b"x", token=token).status == 503
    assert not json.loads(b.ctl("--json", "cluster", "status", check=False).stdout)["fresh"]
    bucket.faults = []
    until(lambda: b.put("/models/me/other/x", b"x", token=token).status == 401)


def test_a_client_whose_change_waits_at_the_end(node, bucket):
    """The bucket is silent, and the drain ends: the client gets an answer, not a closed connection."""
    m = node(conf='drain = "6s"')
    token = m.token("ci", "publish:models/*")
    assert m.put("/models/me/gpt/x", b"1", token=token).status == 201
    for keys in ("log/", "pack/"):
        bucket.faults = [Fault("slow", keys, ("PUT",), delay=600)]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(m.put, "/models/me/gpt/y", b"2", token=token)
            until(lambda: m.ctl_json("cluster", "status")["commits_waiting"])
            m.stop()
            got = waiting.result()
        bucket.faults = []
        assert got.status == 503 and got["retry-after"], got
        m.start()


CHANGES = [("token", "revoke", "none"), ("cache", "pin", "models/a"), ("snapshot", "rollback", "models", "me/gpt", "v1")]


@pytest.mark.parametrize("verbs", [
    [("cluster", "status"), ("cluster", "gc"), ("cluster", "verify"), ("cluster", "nodes"), ("status",)],
    [("cluster", "status"), ("cluster", "leave", "--local"), ("cluster", "adopt"), ("cluster", "drain", "--timeout", "1s"), ("cluster", "check")]],
    ids=["it goes on", "it is moved"])
def test_what_is_asked_while_it_stops(node, bucket, verbs):
    """The cluster is stopped two seconds before the drain ends. A status or a collection that somebody asked for then met a collector that
    was gone, and the mirror crashed; all else that can be asked for must find something that still answers, too."""
    m = node(poll=None, conf='drain = "5s"')
    token = m.token("ci", "publish:models/*")
    assert m.put("/models/me/gpt/x", os.urandom(64 << 20), token=token).status == 201
    def ask(verb):
        while m.alive():
            m.ctl(*verb, check=False)
    with socket.create_connection(("127.0.0.1", m.port)) as reader, concurrent.futures.ThreadPoolExecutor(8) as pool:
        reader.sendall(b"GET /models/me/gpt/x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert reader.recv(1000)
        m.child.send_signal(signal.SIGTERM)
        for asked in [pool.submit(ask, verb) for verb in verbs + CHANGES]:
            asked.result()
    m.complain(m.child.returncode)
    m.child = None
