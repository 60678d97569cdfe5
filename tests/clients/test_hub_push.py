"""What people push with: push_to_hub of transformers, datasets and mixins, schedulers, upload_large_folder; on a hosted repository."""
import signal

import pytest

from clients.test_hub import client, venv
from clients.test_hub_large import asked, break_off, paths, start

pytestmark = pytest.mark.xdist_group("hub home")

TOKENIZER = """
import json
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast, GPT2Config
t = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
t.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=t, unk_token="[UNK]").push_to_hub("me/tok")
GPT2Config(n_layer=3).push_to_hub("me/tok")
print(json.dumps({"ids": AutoTokenizer.from_pretrained("me/tok")("b a c")["input_ids"], "layers": AutoConfig.from_pretrained("me/tok").n_layer}))
"""

MIXIN = """
import json, pathlib
from huggingface_hub import CommitScheduler, HfApi, ModelHubMixin, hf_hub_download
class Model(ModelHubMixin):
    def __init__(self, size: int = 1):
        self.size = size
    def _save_pretrained(self, folder):
        (folder / "weights.txt").write_text("w" * self.size)
    @classmethod
    def _from_pretrained(cls, *, model_id, **kw):
        m = cls()
        m.size = len(open(hf_hub_download(model_id, "weights.txt")).read())
        return m
Model(size=5).push_to_hub("me/mixed")
pathlib.Path("logs").mkdir()
with CommitScheduler(repo_id="me/logs", folder_path="logs", every=100, repo_type="model") as s:
    with s.lock:
        pathlib.Path("logs/a.jsonl").write_text("{}\\n")
    s.trigger().result()
api = HfApi()
print(json.dumps({"size": Model.from_pretrained("me/mixed").size, "logs": sorted(api.list_repo_files("me/logs"))}))
"""

DATASET = """
import json
from datasets import Dataset, DatasetDict, load_dataset
made = DatasetDict({"train": Dataset.from_dict({"x": list(range(1000)), "t": ["text %d" % i for i in range(1000)]}), "test": Dataset.from_dict({"x": [1], "t": ["one"]})})
made.push_to_hub("me/rows")
first = load_dataset("me/rows")
Dataset.from_dict({"x": [7, 8], "t": ["a", "b"]}).push_to_hub("me/rows", split="extra")
again = load_dataset("me/rows", split="extra")
lazy = next(iter(load_dataset("me/rows", split="train", streaming=True)))
print(json.dumps({"rows": {k: v.num_rows for k, v in first.items()}, "sum": sum(first["train"]["x"]), "extra": again["x"][:], "lazy": lazy}))
"""


def test_transformers(home):
    assert home.python(venv("transformers", "jinja2"), TOKENIZER) == {"ids": [1, 0, 2], "layers": 3}


@pytest.mark.parametrize("version", ["0.36.0", "1.22.0", ""], ids=lambda v: v or "newest")
def test_mixin_and_scheduler(home, version):
    out = home.python(venv("huggingface_hub" + (f"=={version}" if version else ""), "jinja2"), MIXIN)
    assert out["size"] == 5 and "a.jsonl" in out["logs"]


def test_datasets(home):
    assert home.python(venv("datasets"), DATASET, knocks=("lookup datasets-server.127.0.0.1", "lookup s3.amazonaws.com")) == {
        "rows": {"train": 1000, "test": 1}, "sum": 499500, "extra": [7, 8], "lazy": {"x": 0, "t": "text 0"}}


@pytest.mark.parametrize(("version", "xet"), [("0.30.2", False), ("0.36.0", True), ("1.22.0", False), ("1.22.0", True)])
def test_a_large_folder_broken_off(home, tmp_path, version, xet):
    """upload_large_folder, which huggingface_hub has up to its 1.x, in several commits; killed after the first one, and begun again."""
    folder = tmp_path / "up"
    for i in range(300):
        path = folder / f"d{i % 7}" / f"{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"file {i}")
    for i in range(2):
        (folder / f"w{i}.bin").write_bytes(bytes([i]) * (9 << 20))
    up = "import sys; from huggingface_hub import HfApi; " \
         "HfApi().upload_large_folder(repo_id='me/gpt', folder_path=sys.argv[1], repo_type='model', num_workers=4, print_report=False); print(1)"
    python = client(version, xet) / "python"
    which = home.m, "POST", "/commit/", 200
    break_off(home.m, start(home, [python, "-c", up, folder]), signal.SIGKILL, lambda: paths(*which))
    for note in (folder / ".cache").rglob("*.metadata"):
        if not note.stat().st_size:  # one that the client was about to write: older ones stumble over it
            note.unlink()
    home.run([python, "-c", up, folder])
    assert 2 <= asked(*which) <= 25  # twenty files each, or what was ready
    files = home.python(client(version, xet), "import json; from huggingface_hub import HfApi; print(json.dumps(HfApi().list_repo_files('me/gpt')))")
    assert sorted(files) == sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and ".cache" not in p.parts)
    assert home.m.get("/models/me/gpt/w1.bin").body == b"\1" * (9 << 20) and home.m.get("/models/me/gpt/d0/7.txt").body == b"file 7"
