"""Models go both ways: what transformers writes the trainer measures alike, and what the trainer writes transformers loads."""
import json
import os
import re
import subprocess

import pytest

from harness.mirrord import BUILD, ROOT

pytestmark = pytest.mark.xdist_group("transformers")
SEQ = 32
LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
         "hidden_size": 24, "intermediate_size": 40, "vocab_size": 256, "max_position_embeddings": 128}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 256, "n_positions": 64}
MODELS = {
    "gpt2": (GPT2, "float32"),
    "gpt2-untied": ({**GPT2, "tie_word_embeddings": False, "n_inner": 24}, "float32"),
    "gpt2-bf16": (GPT2, "bfloat16"),
    "llama": (LLAMA, "float32"),
    "llama-3": ({**LLAMA, "rope_parameters": LLAMA3, "tie_word_embeddings": True}, "float32"),
    "llama-biases": ({**LLAMA, "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1}, "float32"),
    "llama-fp16": (LLAMA, "float16"),
}


@pytest.fixture(scope="module")
def transformers(python_with):
    """Calls of hub_model.py."""
    python = python_with("torch", "transformers")
    env = dict(os.environ, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
    with subprocess.Popen([python, ROOT / "tests/clients/hub_model.py"], env=env, text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as child:
        def call(*args):
            print(json.dumps(args, default=str), file=child.stdin, flush=True)
            return json.loads(child.stdout.readline())
        yield call
        child.stdin.close()


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(bytes((i * i // 7 + i) % 256 for i in range(40 * SEQ + 1)))
    trainer("tokenize", "--out", tmp_path / "text.bin", path)
    return path


def trainer(*args):
    done = subprocess.run([BUILD / "trainer", *map(str, args)], text=True, capture_output=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def our_loss(folder, text):
    out = trainer("eval", "--json", "--device", "cpu", "--model", folder, "--data", f"{text}.bin", "--seq", SEQ)
    return json.loads(out.splitlines()[-1])["loss"]


def their_loss(transformers, folder, text):
    said = transformers("loss", folder, text, SEQ)
    assert not said["wrong"], said
    return said["loss"]


@pytest.mark.parametrize("name", MODELS)
def test_what_transformers_writes(transformers, text, tmp_path, name):
    config, dtype = MODELS[name]
    transformers("make", tmp_path / "hub", config, dtype)
    if dtype == "float32":
        assert (tmp_path / "hub/model.safetensors.index.json").exists()
    assert abs(our_loss(tmp_path / "hub", text) - their_loss(transformers, tmp_path / "hub", text)) < 1e-4


@pytest.mark.parametrize("name", MODELS)
def test_what_the_trainer_writes(transformers, text, tmp_path, name):
    (tmp_path / "config.json").write_text(json.dumps(MODELS[name][0]))
    trainer("train", "--device", "cpu", "--config", tmp_path / "config.json", "--data", f"{text}.bin", "--out", tmp_path / "run",
            "--seq", SEQ, "--steps", 5, "--batch", 4, "--lr", "1e-2")
    checkpoint = tmp_path / "run/checkpoint-5"
    assert abs(our_loss(checkpoint, text) - their_loss(transformers, checkpoint, text)) < 1e-4


@pytest.mark.parametrize("tokenizer, name", [("gpt2", "gpt2"), ("llama3", "llama-3")])
def test_both_go_on_alike(transformers, tmp_path, tokenizer, name):
    """The likeliest tokens, one after another: ours over kept keys and values, theirs read anew each time."""
    text = (ROOT / f"tests/unit/agent/train/golden/{tokenizer}.json").read_text()
    known = json.loads(text)
    vocab = len({*known["model"]["vocab"], *(t["content"] for t in known["added_tokens"])})
    transformers("make", tmp_path / "hub", {**MODELS[name][0], "vocab_size": vocab}, "float32")
    (tmp_path / "hub/tokenizer.json").write_text(text)
    prompt = "The quick brown fox"
    ours = trainer("sample", "--device", "cpu", "--model", tmp_path / "hub", "--prompt", prompt, "--tokens", 48, "--temperature", 0)
    theirs = transformers("go_on", tmp_path / "hub", prompt, 48)
    theirs = re.split(r"<\|endoftext\|>|<\|end_of_text\|>", theirs)[0]  # there we stop
    # How many marks a run of bytes gets that are no text is each program's own affair.
    ours, theirs = (re.sub("\ufffd+", "\ufffd", text.rstrip("\n")) for text in (ours, theirs))
    assert ours == theirs
