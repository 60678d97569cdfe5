#!/usr/bin/env python3
"""make.py [f64] [bf16] [f16] - a small GPT-2 and a small Llama by transformers, and what PyTorch computes from them.

f64 makes the models and what float64 says of them, bf16 and f16 what those types say of the models that are there; all when none
is named.
Needs torch and transformers; their results are kept in git, so that the tests need neither. For each family a folder:

  config.json, model.safetensors   as transformers writes them (random weights, f32)
  golden.safetensors               tokens [STEPS, BATCH, SEQ + 1]; logits [BATCH, SEQ, vocab] and the gradients of the mean
                                   loss (grad.<name>) for the first batch; losses [STEPS], before each of STEPS steps of AdamW
  golden-<type>.safetensors        bf16 and f16: the first batch by the weights rounded to that type: in float64 (exact.logits,
                                   exact.grad.<name>, kept as f32), and by PyTorch in that type (narrow.logits, narrow.grad.<name>);
                                   the gradients are those of the loss times SCALE, which f16 wants (a power of two: no more is said)

Where transformers computes in float32 whatever the model's type (RMSNorm, RoPE's angles), the same formula in float64
stands in. The optimiser's settings are those of tests/unit/agent/train/golden.c.
"""
import math
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.llama import modeling_llama

HERE = pathlib.Path(__file__).resolve().parent
STEPS, BATCH, SEQ, VOCAB = 20, 2, 12, 48
SCALE = 1024
LR, MIN_LR, WARMUP, BETAS, EPS, DECAY, CLIP = 0.01, 0.001, 4, (0.9, 0.95), 1e-8, 0.1, 0.5

GPT2 = dict(n_layer=2, n_head=2, n_embd=16, vocab_size=VOCAB, n_positions=16, bos_token_id=None, eos_token_id=None)
LLAMA = dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, hidden_size=24,
             intermediate_size=40, vocab_size=VOCAB, max_position_embeddings=128, rms_norm_eps=1e-5,
             tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
             rope_parameters=dict(rope_type="llama3", rope_theta=1000.0, factor=8.0, low_freq_factor=1.0,
                                  high_freq_factor=4.0, original_max_position_embeddings=64))


def norm_f64(self, x):
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def angles_f64(self, x, position_ids):
    p = LLAMA["rope_parameters"]
    inv = p["rope_theta"] ** (-torch.arange(0, LLAMA["head_dim"], 2, dtype=torch.float64) / LLAMA["head_dim"])
    turns = p["original_max_position_embeddings"] * inv / (2 * math.pi)
    share = (turns - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"])
    share = share.clamp(0, 1)
    inv = (1 - share) * inv / p["factor"] + share * inv
    angle = position_ids[:, :, None].double() * inv
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def lr_of(step):
    if step <= WARMUP:
        return LR * step / WARMUP
    if step >= STEPS:
        return MIN_LR
    return MIN_LR + 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))) * (LR - MIN_LR)


def loss_of(model, tokens):
    logits = model(tokens[:, :-1], use_cache=False).logits
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def make(name, model):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    with torch.no_grad():
        for p in model.parameters():  # transformers' own start is too flat to show a mistake
            p += 0.2 * torch.randn_like(p)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = model.double().eval()

    tokens = torch.randint(0, VOCAB, (2, BATCH, SEQ + 1)).repeat(STEPS // 2, 1, 1)  # two batches, over and over
    logits, loss = loss_of(model, tokens[0])
    loss.backward()
    golden = {"tokens": tokens.to(torch.int32), "logits": logits.detach()}
    golden |= {f"grad.{n}": p.grad.clone() for n, p in model.named_parameters()}

    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=DECAY), dict(params=vectors, weight_decay=0.0)],
                                  lr=LR, betas=BETAS, eps=EPS)
    losses = []
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        _, loss = loss_of(model, tokens[step - 1])
        loss.backward()
        losses.append(loss.item())
        norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in model.parameters())).item()
        for p in model.parameters():
            p.grad *= min(1, CLIP / norm)
        for group in optimizer.param_groups:
            group["lr"] = lr_of(step)
        optimizer.step()
    golden["losses"] = torch.tensor(losses, dtype=torch.float64)
    save_file(golden, folder / "golden.safetensors")
    print(name, losses[0], losses[-1], sorted(load_file(folder / "model.safetensors"))[:3])


def first_batch(model, tokens, prefix, dtype):
    logits, loss = loss_of(model, tokens)
    (loss.float() * SCALE).backward()
    kept = {"logits": logits, **{f"grad.{n}": p.grad for n, p in model.named_parameters()}}
    return {f"{prefix}.{n}": t.detach().to(dtype).clone() for n, t in kept.items()}


def narrow(name, type_name, exact_arithmetic):
    """Rounded once, the weights are the same for both; then only the arithmetic differs."""
    folder = HERE / name
    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[type_name]
    tokens = load_file(folder / "golden.safetensors")["tokens"][0].long()

    def rounded():
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
        return model.to(dtype).eval()

    golden = first_batch(rounded(), tokens, "narrow", dtype)
    exact_arithmetic()
    golden |= first_batch(rounded().double(), tokens, "exact", torch.float32)
    save_file(golden, folder / f"golden-{type_name}.safetensors")
    for what in (n[6:] for n in golden if n.startswith("exact.")):
        exact = golden[f"exact.{what}"].double()
        print(name, type_name, what, f"{(golden[f'narrow.{what}'].double() - exact).norm() / exact.norm():.5f}")


def llama_in_f64():
    modeling_llama.LlamaRMSNorm.forward = norm_f64
    modeling_llama.LlamaRotaryEmbedding.forward = angles_f64


def main():
    wanted = sys.argv[1:] or ["f64", "bf16", "f16"]
    kept = modeling_llama.LlamaRMSNorm.forward, modeling_llama.LlamaRotaryEmbedding.forward
    if "f64" in wanted:
        torch.manual_seed(7)
        make("gpt2", transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, attn_implementation="sdpa")))
        llama_in_f64()
        make("llama", transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, attn_implementation="sdpa")))
    for type_name in ("bf16", "f16"):
        if type_name in wanted:
            modeling_llama.LlamaRMSNorm.forward, modeling_llama.LlamaRotaryEmbedding.forward = kept
            narrow("gpt2", type_name, lambda: None)
            narrow("llama", type_name, llama_in_f64)


if __name__ == "__main__":
    main()
