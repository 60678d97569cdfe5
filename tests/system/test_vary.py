"""Vary: fields of a client that a repo forwards, and the answers that its origin tells apart by them (RFC 9111 4.1)."""
import concurrent.futures
import hashlib
import subprocess

import pytest

from harness.corner import Corner
from harness.curl import FLAGS
from harness.mirrord import until

MIB = 1 << 20
HTML, JSON, TEXT = ({"Accept": f"{what}"} for what in ("text/html", "application/json", "text/plain"))
LASTS = "Cache-Control: max-age=600|Vary: Accept"


def config(origin, forward='"Accept", "X-Kind"'):
    return f"""cache {{ default_ttl = 0s }}
               repo "data" {{ protocol = "generic" origin = "{origin.url}/" forward = {{ {forward} }} rule '.' {{ refresh_floor = 0s }} }}"""


def clean(m):
    m.settle()
    assert m.ctl_json("verify", "--deep")["clean"] is True


@pytest.fixture(scope="module")
def common(shared_mirrord, shared_origin):
    m = shared_mirrord(config(shared_origin))
    yield m
    clean(m)


@pytest.fixture
def data(common, shared_origin):
    return Corner(common, shared_origin)


@pytest.fixture
def own(mirrord, origin):
    m = mirrord(config(origin))
    yield Corner(m, origin)
    clean(m)


def negotiated(data, path="/n", fields=LASTS, **script):
    """The same address in HTML, in JSON, and in what it is for all others; each of another length and seed."""
    made = {}
    for seed, kind in enumerate(("", "#text/html", "#application/json")):
        made[kind[1:]] = data.put(path + kind, by="Accept" if not kind else "", size=1000 + seed, seed=7 + seed, fields=fields, **script)
    return made


def bytes_of(data, kind, path="/n"):
    return data.bytes_of(path + kind)


def variants(data):
    return sorted(o.get("variant", "") for o in data.m.ctl_json("cache", "ls", "data", data.folder[1:]))


def test_each_variant_is_kept_and_given_to_its_own(data, wire):
    things = negotiated(data)
    for _ in range(3):
        assert data.get("/n", wire, headers=HTML).body == bytes_of(data, "#text/html")
        assert data.get("/n", wire, headers=JSON).body == bytes_of(data, "#application/json")
        assert data.get("/n", wire).body == bytes_of(data, "")  # curl takes anything
        data.settle()
    assert [t.requests for t in things.values()] == [1, 1, 1]
    assert variants(data) == ["accept", "accept:application/json", "accept:text/html"]
    assert "\taccept:text/html\n" in data.m.ctl("cache", "ls", "data", data.folder[1:]).stdout
    warm = data.get("/n", wire, headers=JSON)
    assert "hit" in warm["cache-status"] and warm["vary"] == "Accept" and warm["etag"] == things["application/json"].tag(9)


def test_without_vary_one_answer_is_for_all(data, wire):
    thing = data.put("/n", size=1000, by="Accept", fields="Cache-Control: max-age=600")
    for headers in (HTML, JSON, {"Accept": "*/*", "X-Kind": "small"}, {"Accept": ""}):
        assert data.get("/n", wire, headers=headers).body == bytes_of(data, "")
        data.settle()
    assert thing.requests == 1 and variants(data) == [""]


def test_what_goes_to_the_origin(data):
    """The listed ones as the client wrote them, and no other; what takes anything is none."""
    thing = data.put("/n", size=10, by="Accept", fields="Cache-Control: no-store")
    for headers in ({"Accept": "Text/HTML ;q=0.5 , */*", "x-kind": "Small", "X-Other": "no", "Accept-Language": "de", "Cookie": "a=b"}, {"Accept": ""}):
        data.get("/n", headers=headers)
    heard = thing.asked[0]
    assert (heard["Accept"], heard["X-Kind"]) == ("Text/HTML ;q=0.5 , */*", "Small")
    assert not any(heard[name] for name in ("X-Other", "Accept-Language", "Cookie"))
    assert thing.asked[1]["Accept"] == "*/*" and thing.asked[1]["X-Kind"] is None


def test_a_redirect_takes_no_more_than_tastes_along(mirrord, origin):
    """What an X-... says is for the origin's own host."""
    m = mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" hosts = {{ "localhost" }} forward = {{ "Accept", "X-Kind" }} }}""")
    origin.put("/n", redirect=f"http://localhost:{origin.port}/there", by="Accept")
    there = origin.put("/there", size=10, by="Accept")
    assert m.get("/data/n", headers={"Accept": "text/html", "X-Kind": "small"}).status == 200
    assert (there.asked[0]["Accept"], there.asked[0]["X-Kind"]) == ("text/html", None)
    assert origin.things["/n"].asked[0]["X-Kind"] == "small"


SAME = {"case": "TEXT/html;Q=1,application/JSON", "blanks": "text/html ; q=1 ,  application/json", "lines": ["text/html;q=1", "application/json"]}


@pytest.mark.parametrize("says", SAME.values(), ids=SAME.keys())
def test_what_means_the_same_is_the_same(data, says, wire):
    thing = data.put("/n", size=100, by="Accept", fields=LASTS)
    data.get("/n", wire, headers={"Accept": "text/html;q=1, application/json"})
    data.settle()
    lines = says if isinstance(says, list) else [says]
    reply = data.get("/n", wire, args=[x for line in lines for x in ("-H", f"Accept: {line}")])
    assert reply.status == 200 and thing.requests == 1


@pytest.mark.parametrize("vary, apart", [("X-Kind", True), ("accept , X-KIND", True), ("User-Agent", False), ("Origin, Accept-Encoding", False), ("Accept", False), ("Accept-Encoding", False)])
def test_by_the_fields_that_vary_names(data, vary, apart, wire):
    """Who asks, and from which page, chooses nothing."""
    thing = data.put("/n", size=100, by="X-Kind", fields=f"Cache-Control: max-age=600|Vary: {vary}")
    for kind in ("small", "large", "small", ""):
        assert data.get("/n", wire, headers={"Accept": "a/b", "X-Kind": kind, "User-Agent": f"u{kind}"}).status == 200
        data.settle()
    assert thing.requests == (3 if apart else 1)


def test_vary_of_everything_is_never_reused(data, wire):
    thing = data.put("/n", size=100, by="Accept", fields="Cache-Control: max-age=600|Vary: Accept, *")
    for _ in range(3):
        assert data.get("/n", wire, headers=HTML).status == 200
        data.settle()
    assert thing.requests == 3 and variants(data) == []


@pytest.mark.parametrize("vary", [True, False])
def test_a_herd_costs_one_transfer_a_variant(data, vary):
    """Whatever they ask for: before the origin has spoken, nobody knows whether it varies."""
    kinds = negotiated(data, fields=LASTS if vary else "Cache-Control: max-age=600") if vary else {
        "": data.put("/n", size=1000, by="Accept", fields="Cache-Control: max-age=600", delay=0.2)}
    asked = [HTML, JSON, TEXT, None] * 8
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        replies = list(pool.map(lambda h: data.get("/n", headers=h), asked))
    for headers, reply in zip(asked, replies):
        kind = (headers or {}).get("Accept", "")
        assert reply.body == bytes_of(data, "#" + kind if kind and vary and kind != "text/plain" else "")
    assert [t.requests for t in kinds.values()] == ([2, 1, 1] if vary else [1])


def test_one_variant_does_not_wait_for_another(data, tmp_path):
    things = negotiated(data)
    things["text/html"] = data.put("/n#text/html", size=8 * MIB, hold_at=MIB, fields=LASTS)
    slow = subprocess.Popen(["curl", "-qsS", "--noproxy", "*", *FLAGS["h1"], "-H", "Accept: text/html", "-o", tmp_path / "slow", data.url("/n")])
    try:
        until(lambda: (tmp_path / "slow").exists() and (tmp_path / "slow").stat().st_size)
        assert data.get("/n", headers=JSON).body == bytes_of(data, "#application/json")
        assert data.get("/n", headers=JSON).status == 200 and things["application/json"].requests == 1
        part = data.get("/n", headers=dict(HTML, Range="bytes=10-19"))
        assert (part.status, part.body) == (206, data.bytes_of("/n#text/html", 10, 20))
        things["text/html"].go.set()
        assert slow.wait(300) == 0
    finally:
        slow.kill()
        slow.wait()
    assert (tmp_path / "slow").read_bytes() == bytes_of(data, "#text/html") and things["text/html"].bytes == 8 * MIB


def test_parts_and_conditions_are_of_a_variant(data, wire):
    things = negotiated(data)
    for headers, kind in ((HTML, "#text/html"), (JSON, "#application/json")):
        whole = data.get("/n", wire, headers=headers)
        data.settle()
        part = data.get("/n", wire, headers=dict(headers, Range="bytes=500-"))
        assert (part.status, part.body) == (206, bytes_of(data, kind)[500:])
        assert data.get("/n", wire, headers=dict(headers, **{"If-None-Match": whole["etag"]})).status == 304
    other = data.get("/n", wire, headers=dict(HTML, **{"If-None-Match": whole["etag"]}))
    assert (other.status, other.body) == (200, bytes_of(data, "#text/html"))
    spliced = data.get("/n", wire, headers=dict(HTML, Range="bytes=500-", **{"If-Range": whole["etag"]}))
    assert (spliced.status, spliced.body) == (200, bytes_of(data, "#text/html")), "another variant's parts do not fit"
    assert [t.requests for t in things.values()] == [0, 1, 1]


def test_a_head_is_of_a_variant(data, wire):
    things = negotiated(data)
    for headers, kind in ((HTML, "text/html"), (JSON, "application/json"), (HTML, "text/html")):
        assert data.get("/n", wire, headers=headers, head=True)["content-length"] == str(things[kind].size)
    assert [t.heads for t in things.values()] == [0, 1, 1]
    for headers, kind in ((HTML, "#text/html"), (JSON, "#application/json")):
        assert data.get("/n", wire, headers=headers).body == bytes_of(data, kind)


def test_each_variant_is_revalidated_by_its_own_tag(data, wire):
    things = negotiated(data, fields="Cache-Control: max-age=0|Vary: Accept")
    for _ in range(3):
        for headers, kind in ((HTML, "#text/html"), (JSON, "#application/json")):
            assert data.get("/n", wire, headers=headers).body == bytes_of(data, kind)
            data.settle()
    for kind in ("text/html", "application/json"):
        t = things[kind]
        assert (t.requests, t.conditional, t.not_modified, t.bytes) == (3, 2, 2, t.size)
    data.put("/n#text/html", size=77, seed=99, fields=LASTS)
    assert data.get("/n", wire, headers=HTML).body == bytes_of(data, "#text/html")
    assert data.get("/n", wire, headers=JSON).body == bytes_of(data, "#application/json")


def test_a_stale_variant_is_for_its_own_alone(data, wire):
    things = negotiated(data, fields="Cache-Control: max-age=0|Vary: Accept")
    body = data.get("/n", wire, headers=HTML).body
    data.settle()
    for kind in things:
        data.put("/n" + ("#" + kind if kind else ""), status=500, by="" if kind else "Accept")
    stale = data.get("/n", wire, headers=HTML)
    assert (stale.status, stale.body) == (200, body) and "stale" in stale["cache-status"]
    assert data.get("/n", wire, headers=JSON).status == 500


def test_what_is_not_there_may_vary_too(data, wire):
    gone = data.put("/n", status=404, words="not in that form", by="Accept", fields="Cache-Control: max-age=600|Vary: Accept")
    html = data.put("/n#text/html", size=100, fields=LASTS)
    for _ in range(2):
        assert data.get("/n", wire, headers=JSON).body == b"not in that form"
        assert data.get("/n", wire, headers=HTML).body == bytes_of(data, "#text/html")
    data.settle()
    assert (gone.requests, html.requests) == (1, 1)


def test_a_no_to_one_wish_leaves_what_all_others_get(data):
    data.put("/n", size=100, by="Accept", fields="Cache-Control: max-age=0")
    data.get("/n")
    data.settle()
    data.put("/n#x/y", status=404, words="no", fields=LASTS)
    assert data.get("/n", headers={"Accept": "x/y"}).status == 404
    data.settle()
    assert variants(data) == [""]
    data.put("/n", status=404, by="Accept")
    assert data.get("/n").status == 404
    until(lambda: variants(data) == [])  # no client waits for that row to go


def test_trouble_with_one_is_not_trouble_with_all(data):
    """A 406 for what one client wants says nothing to the others, though it does not say Vary."""
    data.put("/n", status=406, words="no such form", by="Accept", fields="Cache-Control: max-age=600")
    data.put("/n#text/html", size=100, fields="Cache-Control: max-age=600")
    assert data.get("/n", headers=JSON).status == 406
    assert data.get("/n", headers=HTML).status == 200
    data.settle()
    assert data.get("/n", headers=JSON).status in (200, 406)  # both said that they do not vary
    data.put("/t", status=500, by="Accept")
    data.put("/t#text/html", size=100, fields=LASTS)
    assert data.get("/t", headers=JSON).status == 500
    assert data.get("/t", headers=HTML).status == 200


def test_variants_are_bounded_and_removed_together(own):
    thing = own.put("/n", size=100, by="Accept", fields=LASTS)
    own.put("/nn", size=100, fields="Cache-Control: max-age=600")
    for i in range(20):
        own.get("/n", headers={"Accept": f"text/v{i}"})
        own.settle()
    assert len(variants(own)) == 16 and thing.requests == 20
    own.get("/n", headers={"Accept": "text/v19"})
    assert thing.requests == 20
    assert own.m.ctl_json("cache", "rm", own.name + "/n")["removed"] == 16 and variants(own) == []
    own.get("/n", headers={"Accept": "text/v19"})
    assert thing.requests == 21


def test_pinned_variants_are_put_out_by_none(own):
    thing = own.put("/n", size=100, by="Accept", fields=LASTS)
    own.get("/n", headers=HTML)
    own.settle()
    own.m.ctl("cache", "pin", own.name + "/n")
    for i in range(20):
        assert own.get("/n", headers={"Accept": f"text/v{i}"}).body == bytes_of(own, "")
        own.settle()
    assert len(variants(own)) == 16 and "accept:text/html" in variants(own) and thing.requests == 21
    own.m.ctl("cache", "unpin", own.name + "/n")
    own.get("/n", headers=JSON)
    own.settle()
    assert len(variants(own)) == 16 and "accept:application/json" in variants(own)


def test_variants_outlive_a_kill(own):
    things = negotiated(own)
    for headers in (HTML, JSON):
        own.get("/n", headers=headers)
    own.settle()
    own.m.kill()
    own.m.start()
    for headers, kind in ((HTML, "#text/html"), (JSON, "#application/json")):
        assert own.get("/n", headers=headers).body == bytes_of(own, kind)
    assert [t.requests for t in things.values()] == [0, 1, 1]


def test_what_a_kill_left_of_a_variant_goes_on(own, tmp_path):
    """A large one is parked under its own name: another variant does not take it for its own."""
    size = 96 * MIB
    things = negotiated(own)
    thing = own.put("/n#text/html", size=size, hold_at=80 * MIB, fields=LASTS)
    reader = subprocess.Popen(["curl", "-qsS", "--noproxy", "*", *FLAGS["h1"], "-H", "Accept: text/html", "-o", tmp_path / "cut", own.url("/n")])
    try:
        until(lambda: (tmp_path / "cut").exists() and (tmp_path / "cut").stat().st_size > 72 * MIB)
    finally:
        reader.kill()
        reader.wait()
    own.m.stop()
    own.m.start()
    assert own.get("/n", headers=JSON).body == bytes_of(own, "#application/json") and things["application/json"].bytes == 1002
    thing.go.set()
    before = thing.bytes
    got = own.get("/n", headers=HTML)
    assert got.body == bytes_of(own, "#text/html") and thing.bytes - before < size // 2


def test_a_304_that_varies_otherwise_is_not_believed(data):
    thing = data.put("/n", size=100, by="Accept", fields="Cache-Control: max-age=0")
    data.get("/n", headers=HTML)
    data.settle()
    thing.fields = LASTS
    for _ in range(2):
        assert data.get("/n", headers=HTML).status == 200
        data.settle()
    assert variants(data) == ["", "accept:text/html"] and thing.bytes == 200


def test_a_repo_that_begins_to_forward(own):
    """What was kept before is for those who asked the same."""
    own.m.config = config(own.origin, "")
    own.m.reload()
    things = negotiated(own)
    own.get("/n", headers=HTML)
    own.settle()
    before = things[""].requests
    own.m.config = config(own.origin)
    own.m.reload()
    assert own.get("/n", headers=HTML).body == bytes_of(own, "#text/html")
    own.settle()
    assert own.get("/n").body == bytes_of(own, "") and things[""].requests == before


def test_values_without_end_are_refused(data, wire):
    thing = data.put("/n", size=10)
    assert data.get("/n", wire, headers={"X-Kind": "x" * 3000}).status == 431
    assert thing.requests == 0


def test_an_immutable_object_varies_too(mirrord, origin):
    m = Corner(mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" forward = {{ "Accept" }} rule '.' {{ class = immutable }} }}"""), origin)
    things = negotiated(m, fields="Vary: Accept")
    for _ in range(2):
        for headers, kind in ((HTML, "#text/html"), (JSON, "#application/json")):
            assert m.get("/n", headers=headers).body == bytes_of(m, kind)
            m.settle()
    assert [t.requests for t in things.values()] == [0, 1, 1]


def test_the_right_to_a_variant_is_the_right_to_its_address(mirrord, origin):
    """What it is told apart by is no part of the path that a scope speaks of."""
    m = Corner(mirrord(f"""repo "data" {{ protocol = "generic" origin = "{origin.url}/" forward = {{ "Accept" }} access {{ anonymous = none }} }}"""), origin)
    negotiated(m)

    def bearer(name, scope):
        return {"Authorization": "Bearer " + m.m.token(name, scope)}

    exact, ending, other = bearer("exact", f"read:{m.name}/n"), bearer("ending", "read:data/*n"), bearer("other", "read:data/*html*")
    assert m.get("/n", headers=dict(HTML, **exact)).status == 200
    m.settle()
    digest = hashlib.sha256(bytes_of(m, "#text/html")).hexdigest()
    assert [m.m.get(f"/-/blob/{digest}", headers=h).status for h in (exact, ending, other, {})] == [200, 200, 404, 404]


# --- without `forward` ---

def unset(origin):
    return f'''repo "data" {{ protocol = "generic" origin = "{origin.url}/"
               rule '^[0-9]+/fixed/' {{ class = immutable }} rule '.' {{ refresh_floor = 0s }} }}'''


@pytest.fixture(scope="module")
def common_plain(shared_mirrord, shared_origin):
    m = shared_mirrord(unset(shared_origin))
    yield m
    clean(m)


@pytest.fixture
def plain(common_plain, shared_origin):
    return Corner(common_plain, shared_origin)


@pytest.fixture
def own_plain(mirrord, origin):
    m = mirrord(unset(origin))
    yield Corner(m, origin)
    clean(m)


def test_a_taste_that_vary_names_reaches_the_origin(own_plain, wire):
    """The first answer tells that Accept matters. From then on each client gets its own form, also after a restart."""
    things = negotiated(own_plain)
    for _ in range(3):
        assert own_plain.get("/n", wire, headers=HTML).body == bytes_of(own_plain, "#text/html")
        assert own_plain.get("/n", wire, headers=JSON).body == bytes_of(own_plain, "#application/json")
        assert own_plain.get("/n", wire).body == bytes_of(own_plain, "")
        own_plain.settle()
    assert [t.requests for t in things.values()] == [1, 1, 1]
    assert variants(own_plain) == ["accept", "accept:application/json", "accept:text/html"]
    own_plain.m.stop()
    own_plain.m.start()
    assert own_plain.get("/n", wire, headers=JSON).body == bytes_of(own_plain, "#application/json")
    assert [t.requests for t in things.values()] == [1, 1, 1]


def test_no_taste_is_sent_where_nothing_varies(plain):
    thing = plain.put("/n", size=1000, by="Accept", fields="Cache-Control: max-age=600")
    for headers in (HTML, JSON, None):
        assert plain.get("/n", headers=headers).body == bytes_of(plain, "")
        plain.settle()
    assert thing.requests == 1 and thing.asked[0]["Accept"] == "*/*" and variants(plain) == [""]


def test_any_other_field_that_vary_names_keeps_answers_apart(plain, wire):
    """The origin never gets it; those who differ in it share no answer all the same (RFC 9111 4.1)."""
    thing = plain.put("/n", size=100, by="X-Kind", fields="Cache-Control: max-age=600|Vary: X-Kind, X-More")
    kinds = [{"X-Kind": "a"}, {"X-Kind": "b"}, None, {"X-Kind": "a", "X-More": "x" * 3000}, {"X-Kind": "a", "X-More": "x" * 3001}]
    for _ in range(3):
        for headers in kinds:
            assert plain.get("/n", wire, headers=headers).status == 200
            plain.settle()
    assert thing.requests == len(kinds) and {a["X-Kind"] for a in thing.asked} == {None}


def test_those_who_come_together_are_kept_apart_too(plain):
    thing = plain.put("/n", size=1000, delay=0.2, fields="Cache-Control: max-age=600|Vary: X-Kind")
    asked = [{"X-Kind": "a"}, {"X-Kind": "b"}, None] * 8
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        assert {r.status for r in pool.map(lambda h: plain.get("/n", headers=h), asked)} == {200}
    plain.settle()
    assert thing.requests == 3 and variants(plain) == ["x-kind", "x-kind:a", "x-kind:b"]


@pytest.mark.parametrize("path, vary", [("/n", "Accept-Encoding, User-Agent"), ("/n", "Origin"), ("/n", "Accept-Encoding,Origin,Sec-Fetch-Mode, Cookie"),
                                        ("/fixed/n", "Accept, X-Kind")])
def test_what_a_cdn_says_of_files_leaves_them_shared(plain, path, vary, wire):
    thing = plain.put(path, size=1000, fields=f"Cache-Control: max-age=600|Vary: {vary}")
    for i in range(4):
        headers = {"User-Agent": f"u{i}", "Origin": f"http://o{i}", "Accept": f"a/b{i}", "X-Kind": f"{i}", "Cookie": f"a={i}", "Accept-Encoding": "gzip"}
        assert plain.get(path, wire, headers=headers).body == plain.bytes_of(path)
        plain.settle()
    assert thing.requests == 1 and variants(plain) == [""]


def test_a_vary_of_more_fields_than_are_held_is_not_kept(plain):
    names = ", ".join(f"X-F{i}" for i in range(20))
    thing = plain.put("/n", size=100, fields=f"Cache-Control: max-age=600|Vary: {names}")
    for _ in range(2):
        assert plain.get("/n").status == 200
        plain.settle()
    assert thing.requests == 2 and variants(plain) == []


def test_the_form_that_nobody_takes_is_not_fetched_whole(plain):
    """The first request told what the address varies by. Its own answer has no reader."""
    thing = plain.put("/n", by="Accept", size=256 * MIB, fields=LASTS, rate=16 * MIB)
    html = plain.put("/n#text/html", size=1001, seed=8, fields=LASTS)
    assert plain.get("/n", headers=HTML).body == bytes_of(plain, "#text/html")
    plain.settle()
    assert html.requests == 1 and thing.bytes < 128 * MIB


@pytest.mark.parametrize("fields", ["|".join(f"X-More-{i}: {i}" for i in range(30)) + "|Vary: Accept", f"X-Long: {'x' * 8150}|Vary: Accept",
                                    f"Vary: {'X-Kind, ' * 1500}Accept", "|".join(["Vary: Cookie"] * 30) + "|Vary: Accept",
                                    "|".join(f"Vary: Sec-Hint-{i}" for i in range(30)) + "|Vary: Accept",
                                    "|".join([f"Link: </{i}>; rel=next" for i in range(30)]) + "|Vary: Accept"],
                         ids=["many fields", "a long field", "a long Vary", "many lines", "many names that do not count", "many links"])
def test_whom_an_answer_is_for_is_not_lost_among_its_fields(mirrord, origin, fields, wire):
    """An answer keeps so many fields, and so many bytes of them. With its Vary lost it was given to everybody."""
    m = Corner(mirrord(f"""threads = 1\nrepo "data" {{ protocol = "generic" origin = "{origin.url}/" rule '.' {{ ttl = 1h }} }}"""), origin)
    negotiated(m, fields=fields)
    for _ in range(3):
        for headers, kind in ((HTML, "#text/html"), (JSON, "#application/json")):
            reply = m.get("/n", wire, headers=headers)
            assert reply.body == bytes_of(m, kind) and reply["vary"]
            m.settle()


@pytest.mark.parametrize("says", ["no-store", "private", "max-age=600"])
@pytest.mark.parametrize("status", [200, 403])
def test_what_is_not_kept_is_in_the_clients_form_too(plain, says, status, wire):
    for kind in ("", "#text/html", "#application/json"):
        plain.put("/n" + kind, by="Accept" if not kind else "", size=100 + len(kind), status=status, words=f"no {kind}", seed=len(kind),
                         fields=f"Cache-Control: {says}|Vary: Accept")
    for headers, kind in ((HTML, "#text/html"), (JSON, "#application/json"), (None, "")) * 2:
        reply = plain.get("/n", wire, headers=headers)
        assert (reply.status, reply.body) == (status, bytes_of(plain, kind) if status == 200 else f"no {kind}".encode())
        plain.settle()
