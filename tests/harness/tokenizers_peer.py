"""tokenizers_peer.py - what the `tokenizers` package makes of a text; run by .venv's Python, the tests read what it writes.

    tokenizers_peer.py train gpt2|llama3 VOCAB TEXT OUT.json    a byte-level BPE with the published pre-tokenizer's settings
    tokenizers_peer.py encode TOKENIZER.json TEXT OUT           its ids of the text as one document, uint32 little-endian
"""
import array
import pathlib
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
          "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")


def train(kind, vocab, text, out):
    gpt2 = kind == "gpt2"
    t = Tokenizer(models.BPE(ignore_merges=not gpt2))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if gpt2 else pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train([text], trainers.BpeTrainer(vocab_size=int(vocab), show_progress=False,
                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens(["<|endoftext|>"] if gpt2 else ["<|begin_of_text|>", "<|end_of_text|>"])
    if not gpt2:
        begin = "<|begin_of_text|>"
        t.post_processor = processors.TemplateProcessing(single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1",
                                                         special_tokens=[(begin, t.token_to_id(begin))])
    t.save(out)


def encode(tokenizer, text, out):
    ids = Tokenizer.from_file(tokenizer).encode(pathlib.Path(text).read_bytes().decode(errors="replace")).ids
    pathlib.Path(out).write_bytes(array.array("I", ids).tobytes())


{"train": train, "encode": encode}[sys.argv[1]](*sys.argv[2:])
