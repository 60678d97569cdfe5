"""hub_model.py - what transformers does with a folder of the Hub's: run by a Python that has it, as a program of its own.

Each line of its input is one call as a JSON list, each line of its output the answer:

  ["make", DIR, CONFIG, DTYPE]   writes a random model of that configuration, in files of at most 20 kB
  ["loss", DIR, BYTES, SEQ]      the mean loss over consecutive windows of the file's bytes, and the load's complaints
  ["go_on", DIR, PROMPT, N]      the prompt and the N likeliest tokens behind it, as text
"""
import json
import sys

import tokenizers
import torch
import transformers


def make(folder, config, dtype):
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size="20kB")


def loss(folder, path, seq):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    data = torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint8).long()
    total, windows = 0.0, (len(data) - 1) // seq
    with torch.no_grad():
        for w in range(windows):
            window = data[w * seq:(w + 1) * seq + 1]
            logits = model.eval()(window[None, :-1], use_cache=False).logits
            total += torch.nn.functional.cross_entropy(logits[0], window[1:], reduction="sum").item()
    wrong = {key: sorted(map(str, value)) for key, value in info.items() if value}
    return {"loss": total / (windows * seq), "wrong": wrong}


def go_on(folder, prompt, n):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
    begin = tokenizer.encode(prompt).ids
    token = torch.tensor([begin])
    with torch.no_grad():
        for _ in range(n):
            token = torch.cat([token, model(token, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    return prompt + tokenizer.decode(token[0].tolist()[len(begin):], skip_special_tokens=False)


def main():
    calls, answers = {"make": make, "loss": loss, "go_on": go_on}, sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        name, *args = json.loads(line)
        print(json.dumps(calls[name](*args)), file=answers, flush=True)


if __name__ == "__main__":
    main()
