#!/usr/bin/env python3
"""torch_baseline.py - whole training steps by PyTorch, for the table beside ours: one JSON object on the last line.

  torch_baseline.py --config gpt2-124m --batch 64 --seq 1024 --sdpa flash|cudnn|best [--compile] [--weights f32|bf16]

What PyTorch does best: torch.compile, one SDPA backend, bf16, fused AdamW, tokens by Zipf's law (as `trainer bench` draws
them). --weights f32 keeps f32 parameters under autocast; bf16 has bf16 parameters alone, which learns less and moves less
memory. The time of a step is the median, between waits for the device.
"""
import argparse
import contextlib
import json
import math
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

GPT2 = {"vocab": 50304, "context": 1024, "llama": False}
LLAMA = {"vocab": 128256, "context": 131072, "llama": True}
CONFIGS = {
    "tiny-gpt2": dict(GPT2, vocab=64, context=32, layers=2, heads=2, kv_heads=2, hidden=16, ffn=64),
    "tiny-llama": dict(LLAMA, vocab=64, context=32, layers=2, heads=4, kv_heads=2, hidden=32, ffn=48),
    "gpt2-124m": dict(GPT2, layers=12, heads=12, kv_heads=12, hidden=768, ffn=3072),
    "gpt2-350m": dict(GPT2, layers=24, heads=16, kv_heads=16, hidden=1024, ffn=4096),
    "gpt2-774m": dict(GPT2, layers=36, heads=20, kv_heads=20, hidden=1280, ffn=5120),
    "gpt2-1558m": dict(GPT2, layers=48, heads=25, kv_heads=25, hidden=1600, ffn=6400),
    "llama-1b": dict(LLAMA, layers=16, heads=32, kv_heads=8, hidden=2048, ffn=8192),
}
BACKENDS = {"flash": [SDPBackend.FLASH_ATTENTION], "cudnn": [SDPBackend.CUDNN_ATTENTION], "best": None}


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv, self.dim = c["heads"], c["kv_heads"], c["hidden"] // c["heads"]
        self.llama, hidden, bias = c["llama"], c["hidden"], not c["llama"]
        norm = (lambda: nn.RMSNorm(hidden, eps=1e-5)) if c["llama"] else (lambda: nn.LayerNorm(hidden))
        self.norm1, self.norm2 = norm(), norm()
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv) * self.dim, bias=bias)
        self.proj = nn.Linear(hidden, hidden, bias=bias)
        self.fc = nn.Linear(hidden, c["ffn"] * (2 if c["llama"] else 1), bias=bias)
        self.out = nn.Linear(c["ffn"], hidden, bias=bias)

    def attention(self, x, angles):
        b, t, _ = x.shape
        qkv = self.qkv(x).view(b, t, self.heads + 2 * self.kv, self.dim).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.kv, self.kv], dim=1)
        if self.llama:
            q, k = turn(q, *angles), turn(k, *angles)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv)
        return self.proj(y.transpose(1, 2).reshape(b, t, -1))

    def mlp(self, x):
        if not self.llama:
            return self.out(F.gelu(self.fc(x), approximate="tanh"))
        gate, up = self.fc(x).chunk(2, dim=-1)
        return self.out(F.silu(gate) * up)

    def forward(self, x, angles):
        x = x + self.attention(self.norm1(x), angles)
        return x + self.mlp(self.norm2(x))


def turn(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Model(nn.Module):
    def __init__(self, c, seq, device):
        super().__init__()
        self.wte = nn.Embedding(c["vocab"], c["hidden"])
        self.wpe = None if c["llama"] else nn.Embedding(c["context"], c["hidden"])
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = nn.RMSNorm(c["hidden"], eps=1e-5) if c["llama"] else nn.LayerNorm(c["hidden"])
        half = c["hidden"] // c["heads"] // 2
        rate = 500000.0 ** (-torch.arange(half, device=device) / half)
        angle = torch.outer(torch.arange(seq, device=device), rate)
        self.angles = (angle.cos(), angle.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, token, target):
        x = self.wte(token)
        if self.wpe is not None:
            x = x + self.wpe.weight[: token.shape[1]]
        for block in self.blocks:
            x = block(x, self.angles)
        logits = F.linear(self.norm(x), self.wte.weight)  # tied
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), target.reshape(-1))


def zipf(vocab, count, device):
    """Token t with a chance proportional to 1 / (t + 1)."""
    u = torch.rand(count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (torch.exp(u * math.log(vocab)).long() - 1).clamp_(0, vocab - 1).to(device)


def measure(a, c, device):
    with torch.device(device):
        model = Model(c, a.seq, device)
    if a.weights == "bf16":
        model = model.bfloat16()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                            lr=1e-4, betas=(0.9, 0.95), fused=device == "cuda")
    token = zipf(min(c["vocab"], 50257), a.batch * a.seq + 1, device)
    x, y = token[:-1].view(a.batch, a.seq), token[1:].view(a.batch, a.seq)
    run = torch.compile(model) if a.compile else model
    cast = torch.autocast(device, torch.bfloat16) if a.weights == "f32" else contextlib.nullcontext()
    took = []
    for _ in range(a.warmup + a.steps):
        begin = time.perf_counter()
        with cast:
            loss = run(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if device == "cuda":
            torch.cuda.synchronize()
        took.append(time.perf_counter() - begin)
    return statistics.median(took[a.warmup:]), loss.item(), sum(p.numel() for p in model.parameters())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--config", choices=CONFIGS, default="gpt2-124m")
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--seq", type=int, default=1024)
    p.add_argument("--steps", type=int, default=15)
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--sdpa", choices=BACKENDS, default="best")
    p.add_argument("--weights", choices=("f32", "bf16"), default="f32")
    p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    with sdpa_kernel(BACKENDS[a.sdpa]) if BACKENDS[a.sdpa] else contextlib.nullcontext():
        step_s, loss, parameters = measure(a, CONFIGS[a.config], device)
    print(json.dumps({
        "torch": torch.__version__, "config": a.config, "batch": a.batch, "seq": a.seq, "sdpa": a.sdpa,
        "weights": a.weights, "compile": a.compile, "parameters": parameters, "step_ms": round(step_s * 1e3, 3),
        "tokens_per_s": round(a.batch * a.seq / step_s, 1), "loss": round(loss, 4),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if device == "cuda" else None,
    }))


if __name__ == "__main__":
    main()
