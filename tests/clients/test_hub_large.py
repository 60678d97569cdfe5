"""huggingface_hub, unmodified, bringing what is large to a hosted repository: files in parts, folders of many files, and what is
sent again of an upload that was broken off."""
import hashlib
import json
import os

import pytest

from clients.test_hub import VERSIONS, client
from clients.test_hub_home import home  # noqa: F401

pytestmark = pytest.mark.xdist_group("hub home")

LARGE = (256 << 20) + (5 << 20) + 3
EACH = [pytest.param(v, id=v or "newest") for v in VERSIONS]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Random at its ends and in the middle, else a hole."""
    path = tmp_path_factory.mktemp("large") / "model.safetensors"
    with open(path, "wb") as f:
        for at in (0, LARGE // 2, LARGE - 70000):
            f.seek(at)
            f.write(os.urandom(70000))
    with open(path, "rb") as f:
        return path, hashlib.file_digest(f, "sha256").hexdigest()


def asked(m, method, what):
    """How many requests the access log has of that method, whose path holds `what`."""
    lines = map(json.loads, m.access_log.read_text().splitlines())
    return sum(line["method"] == method and what in line["path"] for line in lines)


@pytest.mark.parametrize("version", EACH)
def test_a_file_in_parts(home, large, version):  # noqa: F811
    path, oid = large
    up = "import sys; from huggingface_hub import HfApi; a = HfApi(); a.create_repo('me/gpt', exist_ok=True); " \
         "a.upload_file(path_or_fileobj=sys.argv[1], path_in_repo='model.safetensors', repo_id='me/gpt'); print('1')"
    home.python(client(version, False), up, path)
    assert (asked(home.m, "PUT", oid), asked(home.m, "POST", oid)) == (5, 2)
    got = home.m.get("/models/me/gpt/resolve/main/model.safetensors", head=True)
    assert (got["etag"], got["content-length"]) == (f'"{oid}"', str(LARGE))
    home.python(client(version, False), up, path)  # what is here is not sent again
    assert (asked(home.m, "PUT", oid), asked(home.m, "POST", oid)) == (5, 2)
