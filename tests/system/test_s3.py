"""A bucket of S3 behind a repo: mirrored whole, and passed through object by object. The bucket verifies each signature."""
import json
import os
import subprocess
import threading
import urllib.parse

import pytest

from harness.mirrord import BUILD, SLOW, until
from harness.s3 import ACCESS, BORN, BUCKET, REGION, SECRET, Bucket, No, checksum
from system.test_sync import lines, run

ODD = ["a b", "a+b", "100%", "\xc3\xbcn\xc3\xafcode", "\xff\xfe", "q=1", "til~de", "new\nline", "amp&er", "q?x", "hash#", "star*", "quote'\"",
       "back\\slash", "(paren)", "semi;colon", "at@x", "comma,", "dot/.hidden", "col:on", "%41", "<tag>"]
FILES = {"top": b"1", "a/one.bin": os.urandom(70000), "a/two.bin": os.urandom(100), "a/b/empty": b"", **{"odd/" + k: k.encode() for k in ODD}}
FAST = 'backoff = "50ms" tries = 2'


@pytest.fixture
def o():
    with Bucket({"pre fix/" + k: v for k, v in FILES.items()}) as b:
        b.put("elsewhere", b"not ours")
        yield b


@pytest.fixture
def start(mirrord, o, tmp_path):
    """A repo x of the prefix; secret: what its file holds."""
    def begin(sync=FAST, origin=f"s3://{BUCKET}/pre fix/", secret=f"{ACCESS}:{SECRET}", more="", region=REGION):
        (tmp_path / "keys").write_text((secret or "") + "\n")
        keys = f'authorization = "file:{tmp_path}/keys"' if secret else ""
        section = "" if sync is None else f"sync {{ {sync} }}"
        m = mirrord(f'repo "x" {{ protocol = "generic" origin = "{origin}" endpoint = "{o.url}" region = "{region}" {keys} {more} {section} }}')
        m.o, m.keys = o, tmp_path / "keys"
        return m
    return begin


def url_of(key):
    return "/x/" + urllib.parse.quote(key.encode("latin-1"), safe="/")


def check(m, tree):
    """All of it is there; but for names that no HTTP path of ours may have it is fetched too."""
    listed = json.loads(m.get("/x/?recursive=1", headers={"Accept": "application/json"}).body)["entries"]
    assert {e["path"] for e in listed if e["path"].isascii()} == {k for k in tree if k.isascii()} and len(listed) == len(tree)
    for path, data in tree.items():
        got = m.get(url_of(path))
        assert (got.status, got.body) == ((400, got.body) if "\n" in path else (200, data)), path


def failed(m, *words):
    done = run(m, rc=69)
    assert done["outcome"] == "failed"
    for w in words:
        assert w in done["why"], done["why"]
    assert SECRET not in m.log() + json.dumps(done) + lines(m)
    return done


# --- mirrored whole ---

def test_every_key_that_can_be_a_path(start, o):
    for key in ("", "folder/", "a//b", "../up", "x/./y", "top/below", "/lead", "a/b/"):
        o.put("pre fix/" + key, b"no")
    m = start()
    done = run(m)
    assert (done["outcome"], done["new"], o.lists) == ("published", len(FILES), [""])
    check(m, FILES)
    assert "left out 8" in lines(m)
    listed = json.loads(m.get("/x/?recursive=1", headers={"Accept": "application/json"}).body)["entries"]
    assert all(e["mtime_ns"] == 1700000000123000000 for e in listed) if "mtime_ns" in listed[0] else True
    o.forget()
    assert run(m)["outcome"] == "unchanged" and not o.sent and len(o.requests) == 1


def test_2500_keys_are_three_requests(start, o):
    tree = {f"n/{i // 100:02}/f{i}": b"%d" % i for i in range(2500)}
    for k, v in tree.items():
        o.put("many/" + k, v)
    m = start(origin=f"s3://{BUCKET}/many")
    assert run(m)["new"] == 2500
    listed = json.loads(m.get("/x/?recursive=1", headers={"Accept": "application/json"}).body)["entries"]
    assert {e["path"] for e in listed} == set(tree)
    o.forget()
    assert run(m)["outcome"] == "unchanged" and len(o.requests) == 3 and len(set(o.lists)) == 3


def test_changed_gone_and_touched(start, o):
    m = start()
    run(m)
    o.forget()
    o.put("pre fix/top", b"2")
    o.put("pre fix/a/two.bin", FILES["a/two.bin"], mtime=BORN + 60)  # uploaded again, the same
    o.rm("pre fix/a/one.bin")
    done = run(m)
    assert (done["outcome"], done["gone"], set(o.sent)) == ("published", 1, {"pre fix/top"})
    check(m, o.tree("pre fix/"))


@pytest.mark.parametrize("secret, code", [(f"{ACCESS}:wrong", "SignatureDoesNotMatch"), (f"AKOTHER:{SECRET}", "InvalidAccessKeyId"),
                                          (f"{ACCESS}:{SECRET}:tok", "InvalidToken"), (None, "AccessDenied")])
def test_keys_that_are_wrong(start, secret, code):
    failed(start(secret=secret), code)


def test_an_expired_token_is_renewed_by_a_reload(start, o):
    o.token, o.expired = "fresh/Token+==", True
    m = start(secret=f"{ACCESS}:{SECRET}:stale")
    failed(m, "ExpiredToken", "reload")
    m.keys.write_text(f"{ACCESS}:{SECRET}:{o.token}\n")
    assert m.reload().returncode == 0
    assert run(m)["outcome"] == "published"
    assert o.token not in m.log() and "stale" not in m.log()


def test_another_region_and_another_clock_and_no_bucket(start, o):
    failed(start(region="us-east-1"), f'region = "{REGION}"')
    o.disturb = lambda key, query: No(301, "PermanentRedirect", "use the other endpoint", Endpoint="x.example",
                                      fields={"x-amz-bucket-region": "eu-north-7"})
    m = start()
    failed(m, "eu-north-7")
    o.disturb = None
    o.skew = 3600
    failed(m, "clock", "RequestTimeTooSkewed")
    o.skew = 0
    o.bucket = "renamed"
    failed(m, "no bucket models")


def test_slow_down_then_fine(start, o):
    left = [2]

    def slowly(key, query):
        with o.lock:
            left[0] -= 1
            return No(503, "SlowDown", "Please reduce your request rate.") if left[0] >= 0 else None
    o.disturb = slowly
    m = start()
    assert run(m)["outcome"] == "published" and o.noes == ["SlowDown"] * 2
    check(m, FILES)


def test_the_list_dies_on_page_two(start, o):
    o.page_size = 5
    deaths = [No(500, "InternalError", "We encountered an internal error."), "cut", No(500, "InternalError"), "cut"]
    o.disturb = lambda key, query: deaths.pop() if "continuation-token" in query and len(o.lists) in (1, 3) and deaths else None
    m = start()
    assert run(m)["outcome"] == "published" and not deaths
    check(m, FILES)
    assert o.lists == sorted(o.lists) and len(set(o.lists)) == len(o.lists)  # no page but the broken one came twice
    o.disturb = lambda key, query: "cut" if "continuation-token" in query else None
    o.put("pre fix/zz", b"new")
    failed(m, "page 2")
    o.disturb = None
    check(m, FILES)


RING = ('<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>'
        "<Contents><Key>pre fix/k{}</Key><Size>1</Size></Contents></ListBucketResult>")
BOMB = '<!DOCTYPE b [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]><ListBucketResult><Name>&b;</Name></ListBucketResult>'


@pytest.mark.parametrize("page, word", [
    (lambda q, n: RING.format("again", n), "back to a page"),
    (lambda q, n: RING.format("ab"[n % 2], n), "back to a page"),
    (lambda q, n: "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", "ListObjectsV2"),
    (lambda q, n: f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t{n}</NextContinuationToken></ListBucketResult>",
     "too many empty pages"),
    (lambda q, n: BOMB, "document type"), (lambda q, n: "<html><body>hello</body></html>", "not the list of a bucket"),
    (lambda q, n: "<ListBucketResult><Contents><Key>k", "invalid XML"), (lambda q, n: "", "invalid XML"),
    (lambda q, n: "<a>" * 50, "not the list"), (lambda q, n: "<ListBucketResult>" + "<a>" * 50, "too many nested elements"),
    (lambda q, n: "<ListBucketResult><Contents><Key>other/key</Key></Contents></ListBucketResult>", "prefix")])
def test_lists_that_lie(start, o, page, word):
    m = start()
    run(m)
    count = [0]

    def lie(key, query):
        if key != "":
            return None
        count[0] += 1
        return 200, page(query, count[0]).encode()
    o.disturb = lie
    done = run(m, rc=69)
    assert done["outcome"] == "failed" and word in done["why"], done["why"]
    check(m, FILES)


def test_an_endless_list_ends_at_max_entries(start, o):
    count = [0]

    def more(key, query):
        count[0] += 1
        rows = "".join(f"<Contents><Key>pre fix/{count[0]}/{i}</Key><Size>1</Size></Contents>" for i in range(1000))
        return 200, f"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t{count[0]}</NextContinuationToken>{rows}</ListBucketResult>".encode()
    o.disturb = more
    failed(start(FAST + " max_entries = 20000"), "max_entries")
    assert count[0] == 21


def test_a_page_that_never_ends(start, o):
    o.disturb = lambda key, query: (200, b"<ListBucketResult>" + b"<Name>x</Name>" * (3 << 20)) if key == "" else None
    failed(start(), "the list is too large")


def test_changed_and_vanished_between_list_and_fetch(start, o):
    m = start()
    run(m)
    o.put("pre fix/top", b"two")
    o.put("pre fix/new", b"n")
    o.put("pre fix/stays", b"s")

    def meanwhile(key, query):
        if key == "pre fix/top":
            o.put("pre fix/top", b"three")
        if key == "pre fix/new":
            o.objects.pop(key, None)
    o.disturb = meanwhile
    for ignores in (False, True):
        o.ignores_if_match = ignores
        done = run(m)
        assert done["outcome"] in ("published", "unchanged")
        assert m.get("/x/top").body == b"1" and m.get("/x/new").status == 404 and m.get("/x/stays").body == b"s"
        o.put("pre fix/top", b"four")
        o.put("pre fix/new", b"n")
    o.disturb = None
    run(m)
    check(m, o.tree("pre fix/"))


def test_one_object_that_may_not_be_read_is_left_out(start, o):
    o.disturb = lambda key, query: No(403, "InvalidObjectState", "The operation is not valid for the object's storage class") \
        if key == "pre fix/top" else None
    m = start()
    assert run(m)["outcome"] == "published"
    assert "left out: top" in lines(m) and "InvalidObjectState" in lines(m)
    check(m, {k: v for k, v in FILES.items() if k != "top"})


def test_keys_that_may_list_and_not_read(start, o):
    m = start()
    run(m)
    o.put("pre fix/top", b"2")
    o.disturb = lambda key, query: No(403, "AccessDenied", "Access Denied") if key != "" else None
    failed(m, "AccessDenied")
    check(m, FILES)


def test_what_the_bucket_knows_of_an_objects_sha256_is_checked(start, o):
    good, bad, parts = os.urandom(50000), os.urandom(50000), os.urandom(50000)
    o.put("pre fix/good", good, x_amz_checksum_sha256=checksum(good), x_amz_checksum_type="FULL_OBJECT")
    o.put("pre fix/parts", parts, x_amz_checksum_sha256=checksum(b"of parts") + "-3", x_amz_checksum_type="COMPOSITE")
    m = start()
    assert run(m)["outcome"] == "published"
    o.put("pre fix/bad", bad, x_amz_checksum_sha256=checksum(good), x_amz_checksum_type="FULL_OBJECT")
    o.forget()
    failed(m, "SHA-256")
    assert o.sent["pre fix/bad"] >= 2
    assert m.get("/x/good").body == good and m.get("/x/parts").body == parts and m.get("/x/bad").status == 404


def test_a_large_object_goes_on_where_it_broke(start, o):
    big = os.urandom(40 << 20)
    o.put("pre fix/big", big)
    cuts = {10 << 20, 25 << 20}
    o.midway = lambda key, at: "cut" if at in cuts and not cuts.discard(at) else None
    m = start()
    assert run(m)["outcome"] == "published"
    assert m.get("/x/big").body == big
    ranges = [h.get("Range") for _, p, h in o.requests if p.endswith("/big")]
    assert ranges[0] is None and len(ranges) == 3 and all(r and r.startswith("bytes=") for r in ranges[1:])
    assert all(h.get("If-Match") for _, p, h in o.requests if p.endswith("/big"))
    assert o.bytes < len(big) * 1.1 + sum(map(len, FILES.values()))


def test_sigkill_and_nothing_is_fetched_twice(start, o):
    for i in range(12):
        o.put(f"pre fix/big/{i}", os.urandom(1 << 20))
    stop = threading.Event()
    o.midway = lambda key, at: stop.wait(240) and "cut" if key > "pre fix/big/5" and "/big/" in key and at >= 1 << 19 else None
    m = start(FAST + " parallel = 4")
    m.ctl("sync", "run", "x")
    until(lambda: m.ctl_json("sync", "ls")[0]["last"].get("files_done", 0) >= 8)
    m.kill()
    stop.set()
    o.midway = None
    done_before = dict(o.sent)
    o.forget()
    m.start()
    assert run(m)["outcome"] == "published"
    check(m, o.tree("pre fix/"))
    assert sum(k in done_before for k in o.sent) <= 5  # those under way alone
    m.ctl("verify", "--deep")


# --- passed through ---

def test_objects_of_a_private_bucket(start, o, wire):
    m = start(sync=None)
    for key, data in FILES.items():
        if "\n" not in key:
            got = m.get(url_of(key), wire)
            assert (got.status, got.body) == (200, data), key
    m.settle()
    o.forget()
    for key, data in list(FILES.items())[:6]:
        assert m.get(url_of(key), wire).body == data
    assert not o.sent
    assert m.get("/x/nosuch", wire).status == 404
    assert m.get("/x/a/one.bin", wire, headers={"Range": "bytes=5-9"}).body == FILES["a/one.bin"][5:10]
    head = m.get("/x/a/one.bin", wire, head=True)
    assert head.status == 200 and int(head.headers["content-length"]) == 70000
    assert SECRET not in m.log()


def test_a_head_is_signed_as_one(start, o):
    m = start(sync=None)
    assert m.get("/x/a/one.bin", head=True).status == 200
    assert not o.noes


def test_nothing_but_objects(start, o):
    m = start(sync=None, origin=f"s3://{BUCKET}/")
    o.forget()
    for path in ("/x/", "/x/?list-type=2", "/x/top?acl", "/x/elsewhere?policy", "/x//", "/x/%2F", "/x/a/", "/x/elsewhere?versionId=1&acl",
                 "/x/elsewhere?versionId="):
        assert m.get(path).status in (403, 404), path
    assert not o.requests
    assert m.get("/x/elsewhere").body == b"not ours"


def test_refreshed_by_its_etag(start, o):
    m = start(sync=None, more="rule '.*' { ttl = 0s }")
    assert m.get("/x/top").body == b"1"
    m.settle()
    assert m.get("/x/top").body == b"1"
    assert o.sent["pre fix/top"] == 1 and any(h.get("If-None-Match") for _, _, h in o.requests)
    m.settle()  # else the next may still share that very answer
    o.put("pre fix/top", b"2")
    assert m.get("/x/top").body == b"2"


def test_trouble_with_the_bucket_drops_nothing(start, o):
    m = start(sync=None, more="rule '.*' { ttl = 0s }")
    assert m.get("/x/top").body == b"1"
    m.settle()
    for no in (No(404, "NoSuchBucket"), No(403, "RequestTimeTooSkewed"), No(400, "ExpiredToken"), No(503, "SlowDown"),
               No(400, "AuthorizationHeaderMalformed", Region="eu-north-8"), No(301, "PermanentRedirect", fields={"x-amz-bucket-region": "eu-north-7"})):
        o.disturb = lambda key, query, no=no: no
        got = m.get("/x/top")
        assert (got.status, got.body) == (200, b"1"), no.code
        fresh = m.get(f"/x/{no.code}")
        assert fresh.status in (502, 503), no.code
    for word in ("no bucket models", "clock", "session token", "eu-north-8", "eu-north-7"):
        m.says(word)
    o.disturb = lambda key, query: No(403, "AccessDenied", "Access Denied")
    assert m.get("/x/a/one.bin").status == 403


def test_parallel_ranges_of_a_cold_object(start, o, client, tmp_path):
    big = os.urandom(48 << 20)
    o.put("pre fix/big.bin", big)
    m = start(sync=None)
    subprocess.run([client("aria2c"), "-q", "-x16", "-s16", "-k1M", "-d", tmp_path, "-o", "out", m.url("/x/big.bin")], check=True, timeout=120 * SLOW)
    assert (tmp_path / "out").read_bytes() == big
    m.settle()
    assert m.get("/x/big.bin").body == big
    assert m.metric("mirrord_upstream_bytes_total") <= len(big) * 1.05 and not o.noes


def test_a_buckets_checksum_judges_what_is_passed_through(start, o):
    good, bad = os.urandom(300000), os.urandom(300000)
    o.put("pre fix/good", good, x_amz_checksum_sha256=checksum(good), x_amz_checksum_type="FULL_OBJECT")
    o.put("pre fix/bad", bad, x_amz_checksum_sha256=checksum(good))
    m = start(sync=None, more="rule '.*' { digest_from = header }")
    assert m.get("/x/good").body == good
    m.settle()
    assert checksum(good) in m.get("/x/good")["repr-digest"]
    broken = m.get("/x/bad")
    assert not broken.whole and bad != broken.body


def test_keys_never_cross_to_another_host(start, o):
    with Bucket({"moved": b"elsewhere"}) as other:
        other.anonymous = True
        o.disturb = lambda key, query: No(307, "TemporaryRedirect", fields={"Location": f"{other.url}/{BUCKET}/moved"}) \
            if key == "pre fix/top" else None
        m = start(sync=None, more=f'hosts = {{"127.0.0.1:{other.port}"}}')
        assert m.get("/x/top").body == b"elsewhere"
        (_, _, fields), = other.requests
        assert not [n for n in fields if n.lower() == "authorization" or n.lower().startswith("x-amz-")]


def test_upstream_check_asks_the_bucket(start, o):
    m = start(sync=None)
    o.forget()
    row, = m.ctl_json("upstream", "check")
    assert (row["up"], row["status"]) == (True, 200) and o.requests[0][:2] == ("HEAD", f"/{BUCKET}/")


@pytest.mark.parametrize("words, why", [
    ('origin = "s3://b/../c/" endpoint = "http://127.0.0.1:1"', '".."'),
    ('origin = "s3://AK:secret@b/"', "bucket"),
    ('origin = "s3://b/" endpoint = "http://127.0.0.1:1/path"', "endpoint"),
    ('origin = "s3://b/" region = "eu west"', "region"),
    ('origin = "https://b.example/" region = "eu-west-1"', "only for an s3 origin"),
    ('origin = "https://b.example/" sync { upstreams = {"s3://b/"} }', "s3 upstream"),
    ('origin = "s3://b/" sync { engine = http }', "engine http does not support"),
    ('origin = "s3://b/" authorization = "file:{keys}"', "access_key:secret_key")])
def test_settings_that_cannot_be(tmp_path, words, why):
    (tmp_path / "keys").write_text("topsecret\n")
    conf = tmp_path / "m.conf"
    conf.write_text(f'state_dir = "{tmp_path}/state"\nlisten "127.0.0.1:0" {{ }}\n'
                    f'repo "x" {{ protocol = generic {words.replace("{keys}", str(tmp_path / "keys"))} }}\n')
    done = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True, check=False)
    assert done.returncode == 78 and why in done.stderr and f"{conf}:3" in done.stderr, done.stderr
    assert "secret@" not in done.stderr and "topsecret" not in done.stderr


def test_s3_is_for_generic_repos(tmp_path):
    conf = tmp_path / "m.conf"
    conf.write_text(f'state_dir = "{tmp_path}/state"\nlisten "127.0.0.1:0" {{ }}\nrepo "x" {{ protocol = pypi origin = "s3://b/" }}\n')
    done = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True, check=False)
    assert done.returncode == 78 and "protocol pypi does not support" in done.stderr
