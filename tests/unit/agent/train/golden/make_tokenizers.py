#!/usr/bin/env python3
"""make_tokenizers.py - makes gpt2.json, llama3.json and tokens.json beside it with the `tokenizers` package.

Two small tokenizers with exactly the settings of GPT-2's and Llama-3's published ones (one file in the old spelling, merges
as strings, one in today's), and what the package makes of some texts. The tests need these files, not the package.
"""
import json
import pathlib
import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
LLAMA3 = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
          "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
LANGUAGES = """Ein Wörterbuch für große Übungen. Où est la bibliothèque ? ¿Dónde está el niño? Съешь ещё этих мягких булок.
Η γρήγορη καφέ αλεπού. 敏捷的棕色狐狸跳过懒狗。いろはにほへと ちりぬるを。다람쥐 헌 쳇바퀴에 타고파. הכלב החום המהיר קופץ. نص حكيم له سر قاطع.
ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ नमस्ते दुनिया Tiếng Việt có dấu. Pchnąć w tę łódź jeża."""
TEXTS = [
    "", " ", "a", "  ", "\n", "\r\n", "\t", "Hello world", " Hello  world ", "Hello   world\n", "it's IT'S we'll We'LL 'tis o'clock",
    "don't can't I'd he'd you're They'Ve x'm X'M 'ſ k'\u212a", "1 12 123 1234 12345 1234567890", "a1b22c333d4444", "3.14159 1,000,000 0x1F",
    "foo(bar, baz[1]);\n\n\treturn x;\n}\n", "    if x:\n        y = 1\n\n\n    else:\n  z\n", "line\r\nline\r\n\r\n  line\r\r\nend\r",
    "!!!???...\n\n\nabc", "a.\n b.\n\nc", "end of line   \n   next", "tabs\t\tand\t \tblanks \t", " " * 100, "x" + " " * 37 + "y", "\n" * 20, " \n \n \nx",
    "=" * 80, "ab" * 200, "The quick brown fox " * 20, LANGUAGES, "é è ê e\u0301 ﬁ Ⅷ ² ½ ٣ 三 〇 Ⅻ",
    "😀 😀😀 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ☃\ufe0f", "a\u00a0b\u2003c\u3000d\u2028e\u2029f\u0085g\u200bh\u180ei\ufeffj", "\u00a0\u00a0 \u2003\n\u3000x",
    "\x00\x01\x02\x1b[0m\x7f", "\ufffd\ufffe\U0010ffff\ue000", "<|endoftext|>", "a<|endoftext|>b", "a <|endoftext|> b\n<|endoftext|>",
    "<|endoftext|><|endoftext|>", "<|endoftext", "<|end<|endoftext|>", "<|begin_of_text|>x<|end_of_text|>\n", "  <|end_of_text|>  ",
    "<|tag|> and <|tag|>s and <|ta", "http://example.org/a?b=c&d=%20#e", "snake_case camelCase UPPER kebab-case a--b __init__",
    "\"quoted\" 'single' `code` «»", "{\"key\": [1, 2.5, null, true]}", "#include <stdio.h>\n#define X 1\n", "$100 €5 £3 ¥9 50% a@b.example #1",
    "mixed日本語text and 中文字123", "ЁЖИК ёжик İstanbul ıı ẞ ß", "𝕌𝕟𝕚𝕔𝕠𝕕𝕖 𐍈 𠜎", "a\u0300\u0301b", "क्षत्रिय", "\u202etfel\u202c",
]


def corpus():
    root = HERE.parents[4]
    yield LANGUAGES
    for pattern in ("README.md", "docs/*.md", "common/base/*.[ch]", "agent/train/data.c"):
        for f in sorted(root.glob(pattern)):
            yield f.read_text()


def trained(ignore_merges, pre_tokenizer, special, size):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer, t.decoder = pre_tokenizer, decoders.ByteLevel()
    t.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens(special)
    return t


def gpt2():
    t = trained(False, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], 700)
    t.add_tokens(["<|tag|>"])  # normalized: found behind the others
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    d = json.loads(t.to_str())
    del d["model"]["type"], d["model"]["ignore_merges"], d["pre_tokenizer"]["use_regex"]
    d["model"]["merges"] = [" ".join(m) for m in d["model"]["merges"]]
    return t, d


def llama3():
    t = trained(True, pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), [], 700)
    d = json.loads(t.to_str())
    d["model"]["vocab"]["Ġworld"] = 700  # no merge reaches it: ignore_merges finds it all the same
    t = Tokenizer.from_str(json.dumps(d))
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>"])
    begin = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    return t, json.loads(t.to_str())


def main():
    made = {}
    for name, (t, d) in {"gpt2": gpt2(), "llama3": llama3()}.items():
        (HERE / f"{name}.json").write_text(json.dumps(d, ensure_ascii=False, separators=(",", ":")) + "\n")
        made[name] = Tokenizer.from_file(str(HERE / f"{name}.json"))
        assert all(made[name].encode(x).ids == t.encode(x).ids for x in TEXTS)
    rng = random.Random(1)
    texts = TEXTS + ["".join(rng.choice(TEXTS[i % len(TEXTS)] or "x") for _ in range(40)) for i in range(60)]
    rows = [{"text": x, **{n: t.encode(x, add_special_tokens=False).ids for n, t in made.items()}} for x in texts]
    (HERE / "tokens.json").write_text("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]\n")


main()
