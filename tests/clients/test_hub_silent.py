"""huggingface_hub as pip installs it, with its own time-outs, of 10 s each, while the Hub is silent, gone, or its bodies break off."""
import pytest

from clients.test_hub import FILES, TREE, World, client, digest
from harness.hub import Big
from harness.mirrord import until

OLD = "patience = 1h stall = 1h rule '' { ttl = 1s stale_while = 0s neg_ttl = 0s }"
ALICE = "hf_alice"
SNAPSHOT = TREE + """
import json
from huggingface_hub import snapshot_download
print(json.dumps([tree(snapshot_download("org/demo")), tree(snapshot_download("meta/gated", token="hf_alice"))]))
"""
ASK = """
import json
from huggingface_hub import HfApi, HfFileSystem
api, fs = HfApi(), HfFileSystem()
with fs.open("org/demo/config.json") as f:
    text = f.read().decode()
print(json.dumps([api.model_info("org/demo").sha, api.model_info("org/demo", revision="main").sha, sorted(fs.ls("org/demo", detail=False)), text]))
"""
COLD = """
import json
from huggingface_hub import hf_hub_download, snapshot_download
said = []
for f, args in ((snapshot_download, ["org/none"]), (hf_hub_download, ["org/none", "config.json"])):
    try:
        f(*args)
    except Exception as e:
        while e is not None:
            said.append(f"{type(e).__name__}: {e}")
            e = e.__cause__ or e.__context__
print(json.dumps(said))
"""
OPTIONAL = """
import json
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError
said = []
for name in ("adapter_config.json", "chat_template.jinja"):
    try:
        said.append(hf_hub_download("org/demo", name))
    except EntryNotFoundError as e:
        said.append(f"{type(e).__name__} {e.response.status_code} {e.response.headers['x-error-code']}")
print(json.dumps(said))
"""


def lose_patience(m):
    """From the next start or reload. Before that a Hub on a busy machine is not silent, and what is to be warm comes."""
    m.config = m.config.replace("patience = 1h", "patience = 1500ms")


@pytest.fixture
def impatient(mirrord, hub, tmp_path):
    hub.users[ALICE] = "alice"
    hub.repo("org/demo", files=FILES)
    hub.repo("meta/gated", files={"weights.bin": Big(50000, 5), ".gitattributes": b"x"}, gated=True, readers={ALICE})
    w = World(mirrord(hub.config(more=OLD)), tmp_path)
    for name in ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"):  # the fixture sets them under sanitizers
        w.env.pop(name, None)
    return w


@pytest.mark.parametrize("gone", [False, True], ids=["silent", "gone"])
@pytest.mark.parametrize("xet", [False, True], ids=["http", "xet"])
def test_what_is_warm(impatient, hub, gone, xet):
    world, bins = impatient, client("", xet)
    whole = [{p: digest(d) for p, d in FILES.items()}, {"weights.bin": digest(Big(50000, 5)), ".gitattributes": digest(b"x")}]
    assert world.python(bins, SNAPSHOT) == whole
    world.m.settle()
    world.m.stop()
    lose_patience(world.m)
    world.m.start()
    hub.voice.clear()
    if gone:
        hub.down()
    world.fresh()
    assert world.python(bins, SNAPSHOT) == whole
    sha = hub.repos["models", "org/demo"].sha
    assert world.python(bins, ASK) == [sha, sha, sorted({"org/demo/" + p.split("/")[0] for p in FILES}), '{"a": 1}']
    if gone:
        hub.up()


@pytest.mark.parametrize("gone", [False, True], ids=["silent", "gone"])
def test_what_a_repository_lacks(impatient, hub, gone):
    """transformers asks for optional files at every load, and fails on anything but this error."""
    world, bins = impatient, client("", False)
    world.python(bins, SNAPSHOT)
    world.m.settle()
    world.m.stop()
    lose_patience(world.m)
    world.m.start()
    hub.voice.clear()
    if gone:
        hub.down()
    world.fresh()
    said = world.python(bins, OPTIONAL)
    assert [s.split(" ", 1)[1] for s in said] == ["404 EntryNotFound"] * 2, said
    if gone:
        hub.up()


def test_what_is_cold_says_why(impatient, hub):
    world, bins = impatient, client("", False)
    world.python(bins, SNAPSHOT)
    lose_patience(world.m)
    world.m.reload()
    hub.voice.clear()
    # While all is fresh nobody asks the Hub, and the first to ask for what is cold waits for its answer.
    until(lambda: "stale" in (world.m.get("/hf/api/models/org/demo/revision/main")["cache-status"] or ""))
    world.fresh()
    world.python(bins, SNAPSHOT)
    said = world.python(bins, COLD)
    assert any("not answered" in s for s in said) and not any("timed out" in s for s in said), said


def test_a_body_that_breaks_off(impatient, hub):
    """The client is cut, asks for the rest, and is told; its own time-out is not what ends it."""
    hub.repo("org/cut", files={"model.safetensors": Big(8 << 20)})
    assert impatient.m.get("/hf/org/cut/resolve/main/model.safetensors", head=True).status == 200  # warm, that alone
    lose_patience(impatient.m)
    impatient.m.reload()
    hub.order(".", ("wall", 3 << 20), times=1 << 30, cdn=True)
    said = impatient.python(client("", False), "from huggingface_hub import hf_hub_download as d; d('org/cut', 'model.safetensors')", fails=True)
    assert "the body ended early" in said and "timed out" not in said, said[-3000:]
