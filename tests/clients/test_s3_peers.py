"""S3 as others have it: botocore signs as we do, and Ceph's gateway takes what we send. Where they are installed; the packages of
the gateway (tests/harness/rgw.py) are too many to be among those of every test run."""
import concurrent.futures
import json
import os
import subprocess

import pytest

from harness import rgw
from harness.cluster import Cluster, probe
from harness.cluster_content import MIB, Content, words
from harness.mirrord import BUILD, know_each_other, until
from harness.round_robin import Cluster as Mirrors
from harness.s3 import ACCESS, BUCKET, REGION, SECRET, Bucket
from system import test_cluster_adopt as adopted
from system import test_cluster_collect as collected
from system import test_cluster_owners as owners
from system import test_cluster_sessions as sessions
from system.test_cluster import node  # noqa: F401  (a fixture)
from system.test_cluster_adopt import alone, section  # noqa: F401  (fixtures)
from system.test_s3 import ODD, check, url_of
from system.test_sync import lines, run

pytestmark = pytest.mark.xdist_group("ceph")  # its start takes half a minute

BOTOCORE = """
import json, sys
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
secret, region, requests = json.load(sys.stdin)
out = []
for method, url, fields in requests:
    said = fields.pop("Authorization")
    names = said.split("SignedHeaders=")[1].split(",")[0].split(";")
    auth = S3SigV4Auth(Credentials("AKTEST", secret), "s3", region)
    r = AWSRequest(method=method, url=url, headers={n: v for n, v in fields.items() if n.lower() in names})
    r.context["timestamp"] = fields["x-amz-date"]
    text = auth.string_to_sign(r, auth.canonical_request(r))
    out.append([url, said.rsplit("=", 1)[1], auth.signature(text, r)])
json.dump(out, sys.stdout)
"""


def test_botocore_signs_the_same(mirrord, python, tmp_path):
    if subprocess.run([python, "-c", "import botocore"], capture_output=True, check=False).returncode:
        pytest.skip("botocore is not installed")
    (tmp_path / "keys").write_text(f"{ACCESS}:{SECRET}:to/k+en==\n")
    with Bucket({f"pre fix/{k}": k.encode() for k in ODD}) as o:
        o.token, o.page_size = "to/k+en==", 7
        settings = f'endpoint = "{o.url}" region = "{REGION}" authorization = "file:{tmp_path}/keys"'
        m = mirrord(f'repo "x" {{ protocol = generic origin = "s3://{BUCKET}/pre fix/" {settings} sync {{ }} }}\n'
                    f'repo "y" {{ protocol = generic origin = "s3://{BUCKET}/" {settings} }}')
        assert run(m)["outcome"] == "published"
        for wanted in ("/y/pre%20fix/a%2Bb", "/y/pre%20fix/%41?versionId=a%2Fb%2B"):
            m.get(wanted, head=True)
            m.get(wanted)
        requests = [(method, o.url + path, fields) for method, path, fields in o.requests]
    done = subprocess.run([python, "-c", BOTOCORE], input=json.dumps([SECRET, REGION, requests]), capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    compared = json.loads(done.stdout)
    assert len(compared) >= len(ODD) + 4 and all(ours == theirs for _, ours, theirs in compared), compared


@pytest.fixture(scope="module")
def ceph():
    if rgw.missing():
        pytest.skip(f"{rgw.missing()[0]} is not installed: make test-heavy installs it")
    with rgw.Rgw() as server:
        server.user("m", ACCESS, SECRET)
        server.client.do("PUT", f"/{BUCKET}")
        yield server


@pytest.fixture
def bucket(ceph):
    with ceph.bucket() as b:
        yield b


def test_ceph_takes_what_we_send(ceph, mirrord, tmp_path):
    odd = [k for k in ODD if "\xff" not in k]  # the gateway wants UTF-8
    tree = {"odd/" + k: k.encode() for k in odd} | {f"n/{i // 100:02}/f{i}": b"%d" % i for i in range(2500)} | {"big": os.urandom(20 << 20)}
    others = ["pre fix/", "pre fix/folder/", "pre fix/a//b", "elsewhere"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda kv: ceph.client.put(*kv), [*(("pre fix/" + k, v) for k, v in tree.items()), *((k, b"no") for k in others)]))
    (tmp_path / "keys").write_text(f"{ACCESS}:{SECRET}\n")
    (tmp_path / "wrong").write_text(f"{ACCESS}:wrong\n")
    head = f'protocol = generic endpoint = "{ceph.url}" authorization = "file:{tmp_path}/'
    m = mirrord(f'repo "x" {{ {head}keys" origin = "s3://{BUCKET}/pre fix/" sync {{ parallel = 16 }} }}\n'
                f'repo "y" {{ {head}keys" origin = "s3://{BUCKET}" }}\nrepo "w" {{ {head}wrong" origin = "s3://{BUCKET}" }}\n'
                f'repo "none" {{ {head}keys" origin = "s3://nosuch" }}')
    first = run(m)
    assert (first["outcome"], first["new"]) == ("published", len(tree)) and "3 pages" in lines(m) and "left out 3" in lines(m)
    few = {k: v for k, v in tree.items() if not k.startswith("n/") or k.endswith("00")}
    for k, v in few.items():
        if "\n" not in k:
            assert m.get(url_of(k)).body == v, k
            assert m.get("/y/pre%20fix/" + url_of(k)[3:]).body == v, k
    assert m.get("/y/pre%20fix/big", headers={"Range": "bytes=1000-1999"}).body == tree["big"][1000:2000]
    assert m.get("/y/pre%20fix/n/00/f7", head=True).status == 200
    assert m.get("/y/nosuch").status == 404
    before = m.upstream_requests()
    assert run(m)["outcome"] == "unchanged" and m.upstream_requests() - before == 3
    ceph.client.put("pre fix/n/00/f7", b"seven")
    ceph.client.rm("pre fix/n/00/f8")
    done = run(m)
    assert (done["outcome"], done["changed"], done["gone"]) == ("published", 1, 1)
    assert m.get("/x/n/00/f7").body == b"seven" and m.get("/x/n/00/f8").status == 404
    assert m.get("/w/elsewhere").status == 502 and m.get("/none/x").status == 502
    until(lambda: "SignatureDoesNotMatch" in m.log() and "no bucket nosuch" in m.log())
    assert SECRET not in m.log()


def test_ceph_carries_the_log_of_a_cluster(bucket, tmp_path):
    """It keeps the one promise: of several who create a key, one succeeds."""
    code, said = probe(bucket, tmp_path)
    assert code == 0 and said.count(": ok") == 7, said
    c = Cluster(bucket, tmp_path)
    try:
        for node in range(4):
            c.start(node, 150)
        c.end()
        c.checkpoint(part_bytes=100)
        c.start(5, 20)
        c.end()
        assert c.count("restored") == 1
        assert c.trim(3600) == 0, "all is young"
        log, bad = c.judge()
        c.checkpoint()
        until(lambda: c.trim(2) > 0)
        c.start(6, 20)
        c.end()
        assert c.count("restored") == 3 and c.count("stopped") == 0, "5, 6 and the writer of the second checkpoint"
    finally:
        c.stop()
    assert not bad and c.count("unknown") == 0 and c.count("ok") == len(log.position) + 20 > 170


def test_ceph_carries_the_content_of_a_cluster(ceph, bucket, tmp_path):
    """Packs, objects of their own, an object in parts; and it refuses what does not match its SHA-256."""
    data = os.urandom(140 * MIB) + words(4 * MIB)
    c = Content(bucket, tmp_path, data)
    items = [("blob", 0, 0), ("blob", 7, 140 * MIB), ("chunks", 7, 140 * MIB), ("blob", 0, 64 * MIB), ("node", 140 * MIB, 2 * MIB),
             *(("node", 140 * MIB + 5000 * i, 9000) for i in range(500)), *(("blob", 10000 * i, 30000) for i in range(1500))]
    result = c.upload(items)
    assert result.code == 0, result
    done, files = c.fetch(result.index)
    assert done.code == 0 and files == c.expected(items), done
    for wrong in (("wrong", 0, 2 * MIB), ("wrong", 0, 70 * MIB)):
        refused = c.upload([wrong])
        assert refused.code == 65 and "do not match its SHA-256" in refused.errors, refused
    assert b"<Upload>" not in ceph.client.do("GET", f"/{BUCKET}", query="uploads=")


# --- mirrors over the gateway: what the tests of the double show ---

@pytest.fixture(scope="module")
def world(ceph, shared_mirrord, shared_origin, tmp_path_factory):
    with ceph.bucket() as b:
        w = Mirrors(shared_mirrord, b, tmp_path_factory.mktemp("cluster"), owners.FILES.format(shared_origin.url), 'heartbeat = "2s"')
        w.ci = w.token("uploader", "publish:models/*")
        with w.front:
            yield w


def test_owners_over_ceph(world, shared_origin):
    owners.test_a_cold_object_is_fetched_once(world.nodes, shared_origin)
    owners.test_a_large_file_leaves_the_bucket_once(world.nodes, world.bucket)
    owners.test_a_file_outlives_those_who_had_it(world.nodes)


@pytest.mark.parametrize("of", ["an_image", "lfs", "an_object_in_parts", "xet"])
def test_uploads_over_ceph(world, of):
    getattr(sessions, f"test_{of}")(world)


test_ceph_deletes_what_no_version_names = collected.test_what_no_version_names_is_deleted
test_ceph_keeps_what_versions_name = collected.test_versions_that_stay_keep_what_they_name
test_publishes_and_a_collector_over_ceph = collected.test_content_is_published_again_while_the_collector_sleeps
test_two_collectors_over_ceph = collected.test_two_collections_at_once
test_a_mirror_comes_back_to_ceph = collected.test_a_mirror_that_was_off_for_a_week
test_what_verify_finds_in_ceph = collected.test_what_verify_finds
test_a_mirror_moves_into_ceph = adopted.test_a_mirror_moves_into_a_bucket
test_a_mirror_moves_out_of_ceph = adopted.test_a_mirror_moves_out_of_a_bucket


def test_orphans_in_ceph(node, bucket):
    """By the gateway's own clock: long enough for a collection that still finds it young."""
    a = node('collect = "0s" collect_delay = "0s" orphan_age = "15s"')
    token = a.token("ci", "publish:models/*")
    collected.put(a, token, "/models/me/gpt/one", b"one")
    orphan = "pack/ab/ab00000000000001"
    bucket.objects[f"prod/{orphan}"] = (bytes(100), None)
    assert collected.collect(a)["orphans"] == 0 and orphan in collected.keys(bucket)
    until(lambda: collected.collect(a)["orphans"] == 1)
    assert orphan not in collected.keys(bucket)
    collected.fresh(node, {"/models/me/gpt/one": b"one"})


def test_a_gateway_that_is_killed(ceph, node, bucket):
    """While two mirrors publish and a collection runs: what was acknowledged is there."""
    nodes = [node('collect = "1s" collect_delay = "0s"', poll=None) for _ in range(2)]
    know_each_other(nodes)
    token = nodes[0].token("ci", "publish:models/*")
    for m in nodes:
        m.secret, m.files = token, {}
        until(lambda: m.put("/models/me/first/f", b"1", token=token).status in (200, 201))  # noqa: B023
    with publisher(nodes[0], 0), publisher(nodes[1], 1):
        go_on(nodes)
        ceph.kill_gateway()
        until(lambda: any(m.put("/models/me/away/f", b"x", token=token).status == 503 for m in nodes))
        ceph.start_gateway()
        go_on(nodes)
    collected.fresh(node, nodes[0].files | nodes[1].files)


def publisher(m, number):
    """Of files of its own."""
    p = adopted.Publisher(m)
    p.count = number * 10**6
    return p


def go_on(nodes):
    """Waits until each of them has published some more."""
    before = [len(m.files) for m in nodes]
    until(lambda: all(len(m.files) > n + 5 for m, n in zip(nodes, before)))


def test_checks_of_ceph(node, bucket):
    """Before any mirror runs, and while one does."""
    a = node()
    for by in (["-c", a.conf], ["--socket", a.socket]):
        done = subprocess.run([BUILD / "mirrorctl", *by, "cluster", "check"], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stdout.count("ok") >= 7, done
    assert not [k for k in bucket.objects if "probe" in k]
