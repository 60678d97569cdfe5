"""trainer tokenize: text of all kinds in, folders of shards out, whole or not there."""
import array
import contextlib
import gzip
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import threading

import pytest

from harness.mirrord import BUILD, ROOT, SLOW, until

GOLDEN = ROOT / "tests/unit/agent/train/golden"
ROWS = json.loads((GOLDEN / "tokens.json").read_text())
HEADER = 128


@pytest.fixture
def trainer():
    def run(*args, code=0):
        done = subprocess.run([BUILD / "trainer", *map(str, args)], capture_output=True, text=True, timeout=240 * SLOW, check=False)
        assert done.returncode == code, done.stderr
        return done.stderr
    return run


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def tokens(folder, side="train"):
    m, all_of_them = manifest(folder), array.array("H")
    for shard in m[side]["shards"]:
        raw = (folder / shard["file"]).read_bytes()
        assert raw[:8] == b"mrdtoken" and len(raw) == HEADER + 2 * shard["tokens"]
        all_of_them.frombytes(raw[HEADER:])
    assert len(all_of_them) == m[side]["tokens"]
    return list(all_of_them)


def tokens_of_bytes(folder, side):
    return b"".join((folder / s["file"]).read_bytes()[HEADER:] for s in manifest(folder)[side]["shards"])


def as_lines(path, texts):
    path.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))


def expected(name, texts, before, end):
    """The package's tokens of each text (golden), a document each."""
    by_text = {r["text"]: r[name] for r in ROWS}
    out = []
    for text in texts:
        ids = by_text[text]
        out += [*before, *ids, *([] if ids[-1:] == [end] else [end])]
    return out


@pytest.mark.parametrize("name", ["gpt2", "llama3"])
def test_as_the_package(trainer, tmp_path, name):
    texts = [r["text"] for r in ROWS if r["text"] and "<|" not in r["text"]]
    as_lines(tmp_path / "a.jsonl", texts)
    trainer("tokenize", "--tokenizer", GOLDEN / f"{name}.json", "--out", tmp_path / "out", tmp_path / "a.jsonl")
    added = {a["content"]: a["id"] for a in json.loads((GOLDEN / f"{name}.json").read_text())["added_tokens"]}
    before = [added["<|begin_of_text|>"]] if name == "llama3" else []
    end = added["<|end_of_text|>" if name == "llama3" else "<|endoftext|>"]
    assert tokens(tmp_path / "out") == expected(name, texts, before, end)
    m = manifest(tmp_path / "out")
    assert (m["tokenizer"], m["vocab"], m["end_of_text"]) == (name, max(added.values()) + 1, end)
    assert (tmp_path / "out/tokenizer.json").read_bytes() == (GOLDEN / f"{name}.json").read_bytes()
    assert "the SHA-256 is correct" in subprocess.run([BUILD / "trainer", "info", tmp_path / "out/train-00000.bin"], check=True,
                                                 capture_output=True, text=True).stdout


def test_packed_and_globbed(trainer, client, tmp_path):
    """The same documents, split over packed files and found by a pattern, are the same tokens."""
    texts = [r["text"] for r in ROWS if r["text"]]
    as_lines(tmp_path / "plain.jsonl", texts)
    as_lines(tmp_path / "part-1.jsonl", texts[:30])
    (tmp_path / "part-1.jsonl.gz").write_bytes(gzip.compress((tmp_path / "part-1.jsonl").read_bytes()))
    as_lines(tmp_path / "part-2.jsonl", texts[30:])
    subprocess.run([client("zstd"), "-q", tmp_path / "part-2.jsonl"], check=True)
    tok = ["tokenize", "--tokenizer", GOLDEN / "gpt2.json", "--out"]
    trainer(*tok, tmp_path / "plain", tmp_path / "plain.jsonl")
    trainer(*tok, tmp_path / "packed", f"{tmp_path}/part-?.jsonl.*")
    assert tokens(tmp_path / "packed") == tokens(tmp_path / "plain")
    whole = (tmp_path / "part-2.jsonl.zst").read_bytes()
    (tmp_path / "part-2.jsonl.zst").write_bytes(whole[:-9])
    err = trainer(*tok, tmp_path / "cut", f"{tmp_path}/part-?.jsonl.*", code=65)
    assert "part-2.jsonl.zst" in err and "ends early" in err
    assert not (tmp_path / "cut").exists() and not (tmp_path / "cut.partial").exists()


def test_shards_validation_and_threads(trainer, tmp_path):
    rng = random.Random(1)
    texts = [" ".join(rng.choices("the of and a to in is you that it he was for on are".split(), k=rng.randint(3, 60)))
             for _ in range(3000)]
    as_lines(tmp_path / "a.jsonl", texts)
    as_lines(tmp_path / "b.jsonl", texts[::-1])
    common = ["--tokenizer", GOLDEN / "gpt2.json", "--val", "10%", "--shard-size", "16k"]
    trainer("tokenize", *common, "--threads", 1, "--out", tmp_path / "one", tmp_path / "a.jsonl")
    trainer("tokenize", *common, "--threads", 7, "--out", tmp_path / "many", tmp_path / "a.jsonl")
    trainer("tokenize", *common, "--out", tmp_path / "turned", tmp_path / "b.jsonl")
    files = sorted(f.name for f in (tmp_path / "one").iterdir())
    assert files == sorted(f.name for f in (tmp_path / "many").iterdir()) and len(files) > 8
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes(), name
    sizes = [(tmp_path / "one" / s["file"]).stat().st_size for s in manifest(tmp_path / "one")["train"]["shards"]]
    assert set(sizes[:-1]) == {16384} and sizes[-1] <= 16384

    def documents(folder, side):
        end, docs = manifest(folder)["end_of_text"], []
        for t in tokens(folder, side):
            docs = docs if docs and docs[-1][-1:] != [end] else docs + [[]]
            docs[-1].append(t)
        return sorted(docs)
    m = manifest(tmp_path / "one")
    assert m["train"]["documents"] + m["val"]["documents"] == 3000 and 200 < m["val"]["documents"] < 400
    # By content, not by place: the same documents are on the same side in any order.
    for side in ("train", "val"):
        assert documents(tmp_path / "one", side) == documents(tmp_path / "turned", side)
    (tmp_path / "lone.txt").write_text("one document")
    (tmp_path / "other.txt").write_text("another document")
    err = trainer("tokenize", *common, "--out", tmp_path / "lone", tmp_path / "lone.txt", tmp_path / "other.txt", code=65)
    assert "none of the 2 documents" in err
    err = trainer("tokenize", "--val", "100%", "--out", tmp_path / "lone", tmp_path / "lone.txt", code=65)
    assert "--val took all documents" in err


@pytest.mark.parametrize("shards, packed", [((), False), (("--shard-size", "4k"), False), (("--shard-size", "4k"), True)])
def test_validation_of_a_single_text_is_its_tail(trainer, tmp_path, shards, packed):
    words = " ".join(f"word {k * k % 977}" for k in range(3000)).encode()
    file = tmp_path / ("a.txt.gz" if packed else "a.txt")
    file.write_bytes(gzip.compress(words) if packed else words)
    common = ["tokenize", "--tokenizer", GOLDEN / "gpt2.json", "--out"]
    trainer(*common, tmp_path / "all", file)
    err = trainer(*common, tmp_path / "out", "--val", "20%", *shards, file)
    whole, train, val = tokens(tmp_path / "all"), tokens(tmp_path / "out"), tokens(tmp_path / "out", "val")
    assert train + val == whole and len(val) == -(-len(whole) // 5), (len(train), len(val), len(whole))
    assert f"{len(train)} tokens and {len(val)} for validation, the end of the text, from 1 files, 1 documents" in err
    made = [s["file"] for side in ("train", "val") for s in manifest(tmp_path / "out")[side]["shards"]]
    assert sorted(f.name for f in (tmp_path / "out").iterdir()) == sorted(["manifest.json", "tokenizer.json", *made])
    assert (len(made) > 2) == bool(shards)
    for shard in made:
        assert "the SHA-256 is correct" in subprocess.run([BUILD / "trainer", "info", tmp_path / "out" / shard], check=True,
                                                     capture_output=True, text=True).stdout


def test_a_single_text_is_split_whichever_side_its_hash_is_on(trainer, tmp_path):
    for i in range(10):
        (tmp_path / "a.txt").write_text(f"text {i}")
        trainer("tokenize", "--val", "50%", "--out", tmp_path / f"{i}", tmp_path / "a.txt")
        assert (tokens_of_bytes(tmp_path / f"{i}", "train"), tokens_of_bytes(tmp_path / f"{i}", "val")) == (b"tex", f"t {i}".encode())
    (tmp_path / "a.txt").write_text("a b<|endoftext|>")  # the mark that ends it is part of its end
    trainer("tokenize", "--tokenizer", GOLDEN / "gpt2.json", "--val", "1%", "--out", tmp_path / "mark", tmp_path / "a.txt")
    assert tokens(tmp_path / "mark", "val") == [700]
    (tmp_path / "a.txt").write_text("c")
    assert "too few to split" in trainer("tokenize", "--val", "1%", "--out", tmp_path / "one", tmp_path / "a.txt", code=65)
    assert not (tmp_path / "one").exists() and not (tmp_path / "one.partial").exists()


def test_bytes_that_are_no_text(trainer, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 \xf0\x9f\x98 \xe2\x82\xac\n")
    (tmp_path / "b.txt").write_text(b"caf\xe9 \xf0\x9f\x98 \xe2\x82\xac\n".decode(errors="replace"))
    for name in "ab":
        err = trainer("tokenize", "--tokenizer", GOLDEN / "gpt2.json", "--out", tmp_path / name, tmp_path / f"{name}.txt")
        assert ("U+FFFD in 2 places" in err) == (name == "a")
    assert tokens(tmp_path / "a") == tokens(tmp_path / "b")


def test_bytes_into_one_file(trainer, tmp_path):
    """Without a tokenizer a token is a byte, whatever it is; folders are walked by name, binary files skipped."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "b.txt").write_bytes(b"\xff\xfe second")
    (tree / "a.txt").write_bytes(b"first\n")
    (tree / "c.bin").write_bytes(b"\x7fELF\0\0")
    (tree / "d.md").write_bytes(b"not asked for")
    err = trainer("tokenize", "--include", "*.[tb]*", "--out", tmp_path / "all.bin", tree)
    assert (tmp_path / "all.bin").read_bytes()[HEADER:] == b"first\n\xff\xfe second"
    assert "from 2 files" in err and "1 binary files skipped" in err


def test_marks_in_text(trainer, tmp_path):
    (tmp_path / "a.txt").write_text("one<|endoftext|>two<|endoftext|>")
    end = 700
    for options, ends in (([], 2), (["--ordinary"], 1)):
        out = tmp_path / f"out{ends}"
        trainer("tokenize", "--tokenizer", GOLDEN / "gpt2.json", *options, "--out", out, tmp_path / "a.txt")
        assert tokens(out).count(end) == ends and tokens(out)[-1] == end
        assert manifest(out)["train"]["documents"] == ends
    out = tmp_path / "tag"
    trainer("tokenize", "--tokenizer", GOLDEN / "gpt2.json", "--end-of-text", "<|tag|>", "--out", out, tmp_path / "a.txt")
    assert tokens(out)[-1] == 701


def test_refused(trainer, tmp_path):
    text, tok = tmp_path / "a.txt", GOLDEN / "gpt2.json"
    text.write_text("text")
    (tmp_path / "bad.jsonl").write_text('{"text":"a"}\n\n{"txt":"b"}\n')
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("")
    (tmp_path / "nfc.json").write_text(tok.read_text().replace('"normalizer":null', '"normalizer":{"type":"NFC"}'))
    (tmp_path / "cut.json").write_text(tok.read_text()[:5000])
    out = tmp_path / "out"
    for code, says, args in (
            (64, "--out", [text]),
            (64, "--shard-size", ["--out", out, "--shard-size", "many", text]),
            (64, "--val", ["--out", out, "--val", "2", text]),
            (64, "give a folder", ["--out", tmp_path / "a.bin", "--val", "1%", text]),
            (64, "--threads", ["--out", out, "--threads", -1, text]),
            (64, "no such token", ["--out", out, "--tokenizer", tok, "--end-of-text", "</s>", text]),
            (65, "no text", ["--out", out, "/dev/null"]),
            (65, "bad.jsonl:3", ["--out", out, tmp_path / "bad.jsonl"]),
            (65, "cut.json", ["--out", out, "--tokenizer", tmp_path / "cut.json", text]),
            (66, "none.txt", ["--out", out, tmp_path / "none.txt"]),
            (66, "tokenizer.json", ["--out", out, "--tokenizer", tmp_path, text]),
            (69, "NFC", ["--out", out, "--tokenizer", tmp_path / "nfc.json", text]),
            (73, "is not empty", ["--out", tmp_path / "full", text])):
        assert says in trainer("tokenize", *args, code=code)
        assert not out.exists() and not pathlib.Path(f"{out}.partial").exists()


def test_killed(trainer, tmp_path):
    """What a kill leaves is no corpus, and is swept by the next run."""
    text = tmp_path / "a.txt"
    os.mkfifo(text)
    command = ["tokenize", "--tokenizer", GOLDEN / "gpt2.json", "--shard-size", "64k", "--out", tmp_path / "out", text]
    child = subprocess.Popen([BUILD / "trainer", *map(str, command)], stderr=subprocess.DEVNULL)

    def write():  # until nobody reads any more
        with contextlib.suppress(BrokenPipeError), text.open("w") as pipe:
            for i in itertools.count():
                pipe.write(f"word{i * i % 9973} ")
    writer = threading.Thread(target=write)
    writer.start()
    until(lambda: list(tmp_path.glob("out.partial/*.bin")))
    child.kill()
    assert child.wait() == -signal.SIGKILL
    writer.join()
    assert not (tmp_path / "out").exists()
    for shard in tmp_path.glob("out.partial/*.bin"):  # those with a name are whole
        trainer("info", shard)
    text.unlink()
    text.write_text("word " * 1000)
    trainer(*command)
    assert not (tmp_path / "out.partial").exists()
    assert manifest(tmp_path / "out")["train"]["documents"] == 1


SHAPE = """{"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 720, "n_positions": 32}"""


def test_the_tokenizer_goes_along(trainer, tmp_path):
    """Shards, checkpoint and sample speak of the same tokens; what would mix two tokenizers is refused."""
    texts = [r["text"] for r in ROWS if r["text"]] * 4
    as_lines(tmp_path / "a.jsonl", texts)
    (tmp_path / "shape.json").write_text(SHAPE)
    for name in ("gpt2", "llama3"):
        trainer("tokenize", "--tokenizer", GOLDEN / f"{name}.json", "--out", tmp_path / name, tmp_path / "a.jsonl")
    common = ["--device", "cpu", "--batch", 2]
    steps = ["train", *common, "--steps", 3, "--out"]
    new = ["--config", tmp_path / "shape.json", "--data", f"{tmp_path}/gpt2/*.bin"]
    trainer(*steps, tmp_path / "run", *new)
    checkpoint = tmp_path / "run/checkpoint-3"
    assert (checkpoint / "tokenizer.json").read_bytes() == (GOLDEN / "gpt2.json").read_bytes()
    assert "tokenizer.json" in (checkpoint / "manifest.sha256").read_text()
    trainer("info", checkpoint)
    trainer("eval", *common, "--model", checkpoint, "--data", f"{tmp_path}/gpt2/*.bin")

    for args in (["eval", "--model", checkpoint], ["train", "--model", checkpoint, "--steps", 1, "--out", tmp_path / "tuned"],
                 ["train", *new[:2], "--tokenizer", GOLDEN / "gpt2.json", "--steps", 1, "--out", tmp_path / "other"]):
        assert "another tokenizer" in trainer(*args, *common, "--data", f"{tmp_path}/llama3/*.bin", code=65)
    assert "other data" in trainer("train", *common, "--resume", "auto", "--steps", 4, "--out", tmp_path / "run", "--data",
                                   f"{tmp_path}/llama3/*.bin", code=65)
    both = tmp_path / "both"
    both.mkdir()
    for name in ("gpt2", "llama3"):
        (both / f"{name}.bin").write_bytes((tmp_path / name / "train-00000.bin").read_bytes())
    assert "another tokenizer" in trainer(*steps, tmp_path / "mix", *new[:2], "--data", f"{both}/*.bin", code=65)
    trainer("train", *common, *new, "--tokenizer", tmp_path, "--steps", 1, "--out", tmp_path / "none", code=66)


def test_sample_speaks_text(trainer, tmp_path):
    """Whole characters only, whatever an untrained model draws; ids beyond the tokenizer are never drawn."""
    (tmp_path / "shape.json").write_text(SHAPE)
    (tmp_path / "a.txt").write_text("naïve ☃ 中文 " * 200)
    trainer("tokenize", "--tokenizer", GOLDEN / "gpt2.json", "--out", tmp_path / "data", tmp_path / "a.txt")
    trainer("train", "--device", "cpu", "--batch", 2, "--steps", 1, "--out", tmp_path / "run", "--config",
            tmp_path / "shape.json", "--data", f"{tmp_path}/data/*.bin")
    sample = [BUILD / "trainer", "sample", "--device", "cpu", "--model", tmp_path / "run/checkpoint-1", "--prompt", "naïve",
              "--tokens", "300", "--temperature", "1", "--top-k", "0"]
    for seed in range(3):
        drawn = [subprocess.run([*sample, "--seed", str(seed)], capture_output=True, check=True).stdout for _ in range(2)]
        assert drawn[0] == drawn[1] and drawn[0].startswith("naïve".encode()) and drawn[0].endswith(b"\n")
        assert len(drawn[0].decode()) > 10  # it is UTF-8
    (tmp_path / "run/checkpoint-1/tokenizer.json").unlink()
    assert "tokenizer.json" in trainer(*sample[1:], code=66)
    trainer(*sample[1:], "--tokenizer", GOLDEN / "gpt2.json")
