"""RFC 9111 as clients see it: what may be kept, for whom, for how long, and in which words it is passed on."""
import email.utils
import subprocess
import time

import pytest

from harness.corner import Corner
from harness.curl import FLAGS
from harness.mirrord import BUILD, until

MIB = 1 << 20


def before(origin):
    """A mirror that leaves all to the origin: no freshness of its own, no floor under a client's no-cache."""
    return f"""cache {{ default_ttl = 0s }}
               repo "data" {{ protocol = "generic" origin = "{origin.url}/" pass_headers = {{"X-Word", "X-Kept", "X-More", "X-Why"}} rule '.' {{ refresh_floor = 0s }} }}"""


@pytest.fixture(scope="module")
def common(shared_mirrord, shared_origin):
    return shared_mirrord(before(shared_origin))


@pytest.fixture
def data(common, shared_origin):
    return Corner(common, shared_origin)


@pytest.fixture
def own(mirrord, origin):
    return Corner(mirrord(before(origin)), origin)


def test_what_came_whole_but_is_not_fresh_is_asked_about(data, wire):
    """The next client may come before the object is on disk; it is asked about all the same."""
    thing = data.put("/n", size=500, fields="Cache-Control: max-age=0")
    for _ in range(8):
        assert data.get("/n", wire).status == 200
    assert (thing.requests, thing.bytes) == (8, 500)


@pytest.mark.parametrize("says", ["no-store", "private, max-age=600", "max-age=600, no-store"])
def test_who_asks_after_its_head_does_not_share_what_is_not_to_be_kept(data, says, tmp_path):
    thing = data.put("/n", size=2 * MIB, hold_at=MIB, fields=f"Cache-Control: {says}")
    clients = []
    try:
        for i in range(2):
            clients.append(subprocess.Popen(["curl", "-qsS", "--noproxy", "*", *FLAGS["h1"], "-o", tmp_path / f"{i}", data.url("/n")]))
            until(lambda: thing.requests == i + 1 and (tmp_path / f"{i}").exists() and (tmp_path / f"{i}").stat().st_size)
        thing.go.set()
        assert [c.wait(300) for c in clients] == [0, 0]
    finally:
        for c in clients:
            c.kill()
            c.wait()
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes() == data.bytes_of("/n")
    assert data.get("/n").status == 200 and thing.requests == 3


def test_the_origins_date_and_expiry_are_passed_on(data, wire):
    """Our own Date beside its Expires would promise another time."""
    now = int(time.time())
    made, good = (email.utils.formatdate(t, usegmt=True) for t in (now - 100, now + 36000))
    data.put("/n", body=b"x", date=made, fields=f"Expires: {good}|Age: 300")
    for _ in range(2):
        reply = data.get("/n", wire)
        assert (reply["date"], reply["expires"], reply["cache-control"]) == (made, good, None)
        assert int(reply["age"]) > 200  # a loop's clock may be behind
        data.settle()


def test_a_304_brings_new_words(data, wire):
    thing = data.put("/n", size=100, fields="Cache-Control: max-age=0|X-Word: old|X-Kept: yes")
    assert data.get("/n", wire)["x-word"] == "old"
    thing.fields = "Cache-Control: max-age=600|X-Word: new|X-More: too"
    for _ in range(2):
        reply = data.get("/n", wire)
        assert (reply["x-word"], reply["x-kept"], reply["x-more"], reply["cache-control"]) == ("new", "yes", "too", "max-age=600")
    assert (thing.requests, thing.bytes) == (2, 100)


@pytest.mark.parametrize("sent,kept", [("text/plain;charset=utf-8", "text/plain;charset=utf-8"), ("text/html", "text/plain"), ("", "text/plain")])
def test_a_304_says_more_of_a_type_but_no_other(data, wire, sent, kept):
    thing = data.put("/n", size=100, type="text/plain", fields="Cache-Control: max-age=0")
    assert data.get("/n", wire)["content-type"] == "text/plain"
    data.settle()
    thing.fields = "Cache-Control: max-age=600" + (f"|Content-Type: {sent}" if sent else "")
    for _ in range(2):
        assert data.get("/n", wire)["content-type"] == kept
        data.settle()
    assert (thing.requests, thing.bytes) == (2, 100)


@pytest.mark.parametrize("says", ['no-cache="x-word, X-More"', 'private="x-word, X-More"'])
def test_fields_that_are_not_to_be_given_from_the_store(mirrord, origin, wire, says):
    """The answer that the origin has just given has them, and no later one but what it has confirmed."""
    m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" pass_headers = {{"X-Word", "X-Kept", "X-More"}} rule '.' {{ ttl = 1h refresh_floor = 0s }} }}""")
    thing = origin.put("/n", size=100, fields=f"Cache-Control: {says}, max-age=600|X-Word: a|X-Kept: b|X-More: c")
    replies = []
    for ask in ("", "", "", "no-cache", ""):
        reply = m.get("/data/n", wire, headers={"Cache-Control": ask} if ask else {})
        replies.append((reply["x-word"], reply["x-kept"], reply["x-more"]))
        m.settle()
    first_hand, stored = ("a", "b", "c"), (None, "b", None)
    assert replies == [first_hand, stored, stored, first_hand, stored] and thing.requests == 2


def test_a_field_for_caches_such_as_this_one(mirrord, origin, wire):
    """RFC 9213. What it says of this cache is nothing to clients: they are given Cache-Control as the origin wrote it, or revalidate."""
    m = mirrord(f"""cache {{ default_ttl = 0s }}
                    repo "data" {{ protocol = "generic" origin = "{origin.url}/" targeted_cache_control = {{"Our-Cache-Control", "CDN-Cache-Control"}} }}
                    repo "else" {{ protocol = "generic" origin = "{origin.url}/else/" }}""")
    for_us = "CDN-Cache-Control: max-age=600"
    said = {"/a": ("Cache-Control: no-store|" + for_us, "no-store", 1), "/b": (for_us, "no-cache", 1),
            "/c": ("Cache-Control: max-age=600|Our-Cache-Control: no-store|" + for_us, "max-age=600", 3),
            "/else/a": ("Cache-Control: no-store|" + for_us, "no-store", 3)}
    for path, (fields, told, requests) in said.items():
        thing = origin.put(path, size=100, fields=fields)
        for _ in range(3):
            reply = m.get(path if "else" in path else "/data" + path, wire)
            assert (reply.status, reply["cache-control"], reply["cdn-cache-control"]) == (200, told, None)
            m.settle()
        assert thing.requests == requests


@pytest.mark.parametrize("names, why", [('"Cache-Control"', "end in -Cache-Control"), ('"X-Accel-Expires"', "end in -Cache-Control"),
                                        ('"CDN Cache-Control"', "not a valid field name"), (", ".join(f'"A{i}-Cache-Control"' for i in range(9)), "the limit is 8")])
def test_targets_that_are_none(names, why, tmp_path):
    conf = tmp_path / "conf"
    conf.write_text(f'state_dir = "{tmp_path}"\nlisten "127.0.0.1:1" {{ }}\n'
                    f'repo "data" {{ protocol = "generic" origin = "http://127.0.0.1:1/" targeted_cache_control = {{{names}}} }}')
    run = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True)
    assert run.returncode == 78 and "conf:3" in run.stderr and why in run.stderr


DEMANDS = {  # of a copy that was 1000 s old when it came and stays fresh for 500 s: is the origin asked?
    "nothing": ("", False), "max-age=900": ("max-age=900", True), "max-age=100000": ("max-age=100000", False),
    "min-fresh=10": ("min-fresh=10", False), "min-fresh=600": ("min-fresh=600", True), "no-cache": ("no-cache", True),
    "max-age=0": ("max-age=0", True), "no-store": ("no-store", False), "only-if-cached": ("only-if-cached", False)}


@pytest.mark.parametrize("asked, goes", DEMANDS.values(), ids=DEMANDS.keys())
def test_what_a_client_demands(data, wire, asked, goes):
    thing = data.put("/n", size=100, fields="Cache-Control: max-age=1500|Age: 1000")
    for _ in range(2):
        data.get("/n", wire)
    reply = data.get("/n", wire, headers={"Cache-Control": asked})
    assert reply.status == 200 and thing.requests == 1 + goes


def test_only_if_cached_asks_nobody(data, wire):
    thing = data.put("/n", size=100, fields="Cache-Control: max-age=0")
    for _ in range(2):
        assert data.get("/n", wire, headers={"Cache-Control": "only-if-cached"}).status == 504
        data.get("/n", wire)
        data.settle()
    assert thing.requests == 2
    stale = data.get("/n", wire, headers={"Cache-Control": "only-if-cached, max-stale"})
    assert stale.status == 200 and "stale" in stale["cache-status"]


def test_the_origins_weak_tag_matches_weakly(data, wire):
    """RFC 9110 13.1.2: a client may have it from the origin itself. It never fits where bytes must be the same."""
    data.put("/n", body=b"x" * 100, fields="Cache-Control: max-age=600", etag='W/"weak"')
    data.get("/n", wire)
    data.settle()
    for tag in ('W/"weak"', '"weak"', '"other", W/"weak"'):
        assert data.get("/n", wire, headers={"If-None-Match": tag}).status == 304
    assert data.get("/n", wire, headers={"If-None-Match": 'W/"other"'}).status == 200
    assert data.get("/n", wire, headers={"If-Match": 'W/"weak"'}).status == 412
    part = data.get("/n", wire, headers={"If-Range": 'W/"weak"', "Range": "bytes=1-2"})
    assert part.status == 200 and len(part.body) == 100


# --- what is no object ---

NOES = [203, 299, 301, 400, 404, 405, 410, 451, 499, 500, 503]


@pytest.mark.parametrize("status", NOES)
def test_what_is_no_object_is_given_as_the_origin_says_it(data, status, wire):
    thing = data.put("/n", status=status, words="the why and wherefore", fields="Cache-Control: no-cache|X-Why: because")
    for i in range(2):
        reply = data.get("/n", wire)
        assert (reply.status, reply.body, reply["x-why"], reply["content-type"]) == (status, b"the why and wherefore", "because", "text/plain")
        assert reply["cache-control"] == "no-cache" and (thing.requests == i + 1 or status >= 500)


@pytest.mark.parametrize("status", NOES)
def test_and_for_as_long_as_the_origin_says(data, status, wire):
    thing = data.put("/n", status=status, words="why", fields="Cache-Control: max-age=600|Age: 100")
    for _ in range(2):
        reply = data.get("/n", wire)
        assert (reply.status, reply.body) == (status, b"why") and int(reply["age"]) > 50  # a loop's clock may be behind
    assert thing.requests == 1
    assert data.get("/n", wire, head=True).status == status and thing.requests == 1
    assert data.get("/n", wire, headers={"Cache-Control": "no-cache"}).status == status and thing.requests == 2


@pytest.mark.parametrize("status, kept", [(203, True), (301, True), (405, True), (414, True), (501, True), (201, False), (400, False), (500, False), (599, False)])
def test_and_for_a_tenth_of_its_age_where_http_allows_to_guess(data, status, kept):
    """RFC 9110 15.1 lists the statuses."""
    thing = data.put("/n", status=status, words="why", fields="Last-Modified: Thu, 01 Jan 2015 00:00:00 GMT")
    assert [data.get("/n").status for _ in range(2)] == [status, status]
    assert thing.requests == (1 if kept else 2)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_never_remembered(data, status):
    thing = data.put("/n", status=status, words="not you", fields="Cache-Control: max-age=600")
    for _ in range(2):
        assert (data.get("/n").status, data.get("/n").body) == (status, b"not you")
    assert thing.requests == 4


def test_no_words_of_a_no_come_late_or_without_end(data, wire):
    """More than a page, and a text that breaks off: the status is told in words of ours."""
    data.put("/long", status=404, words="x" * 20000)
    data.put("/cut", status=404, words="x" * 2000, short=10)
    for path in ("/long", "/cut"):
        reply = data.get(path, wire)
        assert reply.status == 404 and b"origin of repo data" in reply.body


@pytest.mark.parametrize("status", [404, 410, 451])
def test_an_error_without_text_gets_one(data, status, wire):
    """The origin's fields stay; the text is for the one who looks at the answer."""
    data.put("/n", status=status, fields="Cache-Control: max-age=600|X-Why: because")
    for _ in range(2):
        reply = data.get("/n", wire)
        assert (reply.status, reply["x-why"], reply["cache-control"]) == (status, "because", "max-age=600")
        assert reply["content-type"].startswith("text/plain") and b"the origin of repo data sent this status" in reply.body
    head = data.get("/n", wire, head=True)
    assert (head.status, head.body) == (status, b"")
    assert data.get("/n", wire, headers={"Accept": "text/html"})["content-type"].startswith("text/html")


def test_words_are_nobodys_where_a_right_is_needed(mirrord, origin):
    m = mirrord(f"""repo "secret" {{ protocol = "generic" origin = "{origin.url}/" access {{ anonymous = none }} }}""")
    reader = {"Authorization": f"Bearer {m.token('ci', 'read:secret/*')}"}
    origin.put("/n", status=404, words="why", fields="Cache-Control: public, max-age=600")
    for _ in range(2):
        reply = m.get("/secret/n", headers=reader)
        assert (reply.status, reply.body, reply["cache-control"]) == (404, b"why", "private, no-cache")
    assert m.get("/secret/n").status == 401


@pytest.mark.parametrize("says", ["", "Cache-Control: no-cache", "Cache-Control: no-store"])
@pytest.mark.parametrize("status,rest_s", [(500, 2), (502, 2), (503, 5)])
def test_an_origin_in_trouble_is_left_alone(data, status, rest_s, says):
    """From the second error in a row on, its words are repeated for a while; those that may not be kept are replaced by ours."""
    thing = data.put("/n", status=status, words="oh dear", fields=says)
    began = time.monotonic()
    replies = [data.get("/n") for _ in range(20)]
    assert thing.requests <= 2 + (time.monotonic() - began) / rest_s
    own = [r for r in replies if r.body == b"oh dear"]
    assert replies[0] is own[0] and {r.status for r in own} == {status}
    assert len(own) == (thing.requests if "no-store" in says else 20)
    assert {r.status for r in replies} <= {status, 503 if status == 503 else 502}
    assert {r["retry-after"] for r in replies} == ({"5"} if status == 503 else {None})


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599])
def test_a_lone_error_is_not_repeated(data, status, wire):
    """The next request asks again, and gets what the origin has by then: RFC 9111 lets nobody use such an answer twice."""
    thing = data.put("/n", status=status, words="oh dear", fields="Last-Modified: Thu, 01 Jan 2015 00:00:00 GMT")
    assert data.get("/n", wire).status == status
    thing.status, thing.size = 200, 100
    assert data.get("/n", wire).body == data.bytes_of("/n") and thing.requests == 2


def test_an_error_after_a_good_answer_is_a_lone_one_again(data):
    thing = data.put("/n", status=502, words="oh dear", fields="Cache-Control: no-store")
    for status in (502, 200) * 3:
        thing.status, thing.size = status, 100
        assert data.get("/n").status == status
    assert thing.requests == 6


def test_who_waits_shares_an_error(data):
    """Twenty clients at once are one request to an origin that fails."""
    thing = data.put("/n", status=502, words="oh dear", hold_at=0)
    clients = [subprocess.Popen(["curl", "-qsS", "--noproxy", "*", data.url("/n")], stdout=subprocess.PIPE) for _ in range(20)]
    try:
        until(lambda: data.metric("mirrord_cache_waiting") == 20)
        thing.go.set()
        assert {c.communicate(timeout=300)[0] for c in clients} == {b"oh dear"}
    finally:
        for c in clients:
            c.kill()
            c.wait()
    assert thing.requests == 1


@pytest.mark.parametrize("status, says", [(429, ""), (503, "Retry-After: 600")])
def test_an_origin_that_asks_to_be_left_alone_is_asked_once(own, status, says):
    thing = own.put("/n", status=status, words="not now", fields=says)
    assert [own.get("/n").status for _ in range(3)][1:] == [503, 503] and thing.requests == 1


def test_an_old_copy_is_better_than_the_words_of_trouble(data, wire):
    data.put("/n", size=100, fields="Cache-Control: max-age=0")
    body = data.get("/n", wire).body
    data.settle()
    data.put("/n", status=500, words="oh dear")
    reply = data.get("/n", wire)
    assert (reply.status, reply.body) == (200, body) and "stale" in reply["cache-status"]
