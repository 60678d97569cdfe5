"""What a request may cost is bounded before the work for it is begun. Counts, never times."""
import json

import pytest

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
FIELDS_MAX = 4096


@pytest.fixture(params=["hosted", "hf"])
def ask_about(request, mirrord, hub):
    """Posts a form to paths-info of a repository with a file "a"."""
    if request.param == "hosted":
        m = mirrord('repo "models" { protocol = "hosted" }\nthreads = 1')
        assert m.put("/models/org/demo/a", b"x", token=m.token("ci", "publish:models/org/*")).status in (200, 201)
        rev = "main"
    else:
        rev = hub.repo("org/demo", files={"a": b"x"}).sha
        m = mirrord(f'repo "models" {{ protocol = "hf" origin = "{hub.url}/" }}\nthreads = 1')
    return lambda form: m.put(f"/models/api/models/org/demo/paths-info/{rev}", form, method="POST", headers=FORM)


@pytest.mark.parametrize("form", ["paths=b&", "&", "x=1&", "paths=%zz&"])
def test_a_form_has_so_many_fields(ask_about, form):
    """What stands behind the last field that is read is not left out in silence; what is refused is not read."""
    got = ask_about((form * (FIELDS_MAX - 1) + "paths=a").encode())
    assert got.status == 200
    assert [e["path"] for e in json.loads(got.body)] == ["a"]
    got = ask_about((form * FIELDS_MAX + "paths=a").encode())
    assert got.status == 413 and b"4096" in got.body + got["x-error-message"].encode()
