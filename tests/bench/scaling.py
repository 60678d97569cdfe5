"""scaling.py - a model of a training step's time on many GPUs: what is computed, what is sent, and what of it waits for what.

It measures nothing. Bytes are counted (`trainer info` says how many a rank sends, and the groups here must add up to that), rates
are assumed (RATES below). Two queues as agent/train/zero.c has them, a GPU's kernels and its collectives, with the waits between
them: a step is the time from one to the next when both have settled.

    python3 tests/bench/scaling.py --trainer build/trainer          the table of docs/scaling.md
    python3 tests/bench/scaling.py --trainer ... --json --gpus 128 --zero 3 --batch 2 --seq 8192
"""
import argparse
import json
import subprocess

# What is assumed, and of what it is a part.
RATES = {
    "flops": 0.40 * 989.5e12,  # bf16 products of an H100 SXM, by its data sheet; attention and norms included
    "memory": 0.80 * 3.35e12,  # bytes a second of its HBM3
    "nvlink": 0.80 * 450e9,    # bytes a second and GPU in each direction, fourth generation
    "nvlink_hop": 2e-6,        # seconds from one rank of a ring to the next
    "network_hop": 10e-6,
    "launch": 20e-6,           # seconds that a collective takes at least
}
NETWORKS = {  # bytes a second of a node of eight GPUs in each direction
    "IB": 0.90 * 8 * 50e9,         # 400 Gbit/s for each GPU
    "Ethernet": 0.90 * 12.5e9,     # 100 Gbit/s for the node
}
NODE = 8
UPDATE_BYTES = 30  # read and written by AdamW for a parameter: gradient, master and moments, and the bf16 parameter
COMPRESS_BYTES = 32  # of a compressed matrix' element: E three times read, twice written; M read and written; and the factors


def model_of(trainer, config, gpus, zero, batch, seq, compress):
    """Parameters and operations of each group of the layout, checked against what the trainer counts."""
    argv = [trainer, "info", "--config", config, "--ranks", gpus, "--zero", zero, "--batch", batch, "--seq", seq, "--device", "cpu", "--dtype",
            "bf16", "--recompute", "block", "--compress", compress, "--json"]
    done = subprocess.run([str(a) for a in argv], check=True, capture_output=True, text=True)
    m = json.loads(done.stdout.splitlines()[-1])
    m["gradient_bytes"] = m["memory"].get("gradient_bytes", {"plain": 0, "compressed": 0})
    llama = m["model_type"] == "llama"
    table = m["vocab"] * m["hidden"]
    attention = (2 * m["heads"] + 2 * m["kv_heads"]) * m["head_dim"] * m["hidden"]
    block = attention + (3 if llama else 2) * m["hidden"] * m["ffn"]
    ends = m["parameters"] - m["layers"] * block
    m["head"] = table if ends >= 2 * table else 0
    m["groups"] = [ends - m["head"]] + [block] * m["layers"] + [m["head"]]
    tokens = batch * seq
    own = 2 * block + 4 * m["heads"] * m["head_dim"] * seq  # forward; twice as much back
    m["flops"] = [0] + [own * tokens] * m["layers"] + [2 * table * tokens]
    m["token_flops"] = 3 * sum(m["flops"]) / tokens
    counted = sum(m["groups"]) * 4 * (2 if zero == 0 else 1) * (gpus - 1) / gpus
    assert abs(counted - m["gradient_bytes"]["plain"]) <= 0.01 * counted, (counted, m["gradient_bytes"])
    return m


class Wire:
    """Seconds that rings take: among the GPUs of a node, or of all nodes, where each node's network carries what its GPUs get."""

    def __init__(self, gpus, network):
        self.gpus, self.node = gpus, min(gpus, NODE)
        self.nodes = gpus // self.node
        self.network = NETWORKS[network] if self.nodes > 1 else None

    def ring(self, whole_bytes, ranks, nodes):
        """A reduce-scatter or a gather of so many bytes."""
        if ranks == 1 or whole_bytes == 0:
            return 0
        part = whole_bytes * (ranks - 1) / ranks
        hops = (ranks - nodes) * RATES["nvlink_hop"] + (nodes if nodes > 1 else 0) * RATES["network_hop"]
        slowest = part / RATES["nvlink"] if ranks > nodes else 0
        if nodes > 1:
            slowest = max(slowest, part / self.network)
        return RATES["launch"] + hops + slowest

    def all(self, whole_bytes):
        return self.ring(whole_bytes, self.gpus, self.nodes)

    def inside(self, whole_bytes):
        return self.ring(whole_bytes, self.node, 1)

    def between(self, piece_bytes):
        """An all-reduce of each GPU's piece with those of the other nodes; a node's GPUs do that at a time."""
        if self.nodes == 1:
            return 0
        part = 2 * piece_bytes * self.node * (self.nodes - 1) / self.nodes
        return RATES["launch"] + 2 * self.nodes * RATES["network_hop"] + part / self.network


class Step:
    """The two queues. Times are of when a queue is free, and of when a group's parameters and sums have come."""

    def __init__(self, m, wire, zero, groups_of_node, accum, compressed, recompute):
        self.m, self.wire, self.zero, self.accum, self.compressed, self.recompute = m, wire, zero, accum, compressed, recompute
        self.shard = groups_of_node and wire.nodes > 1
        self.ranks = wire.node if self.shard else wire.gpus
        self.ready = [0.0] * len(m["groups"])
        self.kernels = self.collectives = self.busy = 0.0

    def gather(self, g):
        size = 2 * self.m["groups"][g]
        took = self.wire.inside(size) if self.shard else self.wire.all(size)
        self.collectives = max(self.collectives, self.kernels) + took
        self.ready[g] = self.collectives

    def compute(self, flops, factor):
        self.kernels += factor * flops / RATES["flops"]
        self.busy += factor * flops / RATES["flops"]

    def need(self, g, after):
        if self.zero == 3 and g not in self.held:
            self.gather(g)
            self.held.add(g)
        self.kernels = max(self.kernels, self.ready[g])
        if self.zero == 3 and after is not None and after not in self.held:
            self.gather(after)
            self.held.add(after)

    def sum(self, g, last):
        size = 4 * self.m["groups"][g]
        block = 0 < g < len(self.m["groups"]) - 1
        took = 0.0
        if self.zero >= 2 or last:
            if self.compressed and block:
                # Of what a rank sends of this block, what compression leaves; an all-reduce is two rings of the whole.
                saved = (self.m["gradient_bytes"]["plain"] - self.m["gradient_bytes"]["compressed"]) / self.m["layers"]
                share = self.m["gradient_bytes"]["plain"] * self.m["groups"][g] / sum(self.m["groups"])
                whole = (share - saved) / 2 * self.wire.gpus / (self.wire.gpus - 1)
                took = 2 * self.wire.all(whole) + 2 * self.wire.all(1) + COMPRESS_BYTES * self.m["groups"][g] / RATES["memory"]
            elif self.shard:
                took = self.wire.inside(size) + (self.wire.between(size / self.wire.node) if last else 0)
            else:
                took = self.wire.all(size) * (2 if self.zero == 0 else 1)
        self.collectives = max(self.collectives, self.kernels) + took

    def once(self):
        groups = range(len(self.m["groups"]))
        for micro in range(self.accum):
            self.held = set()
            for g in groups:
                self.need(g, g + 1 if g + 1 in groups else None)
                self.compute(self.m["flops"][g], 1)
            self.held = {0, groups[-1], groups[-2], groups[-3]}
            for g in reversed(groups):
                if 0 < g < groups[-1]:
                    self.need(g, g - 1 if g > 1 else None)
                    self.compute(self.m["flops"][g], 2 + self.recompute)
                else:
                    self.compute(self.m["flops"][g], 2)
                self.sum(g, micro == self.accum - 1)
        self.kernels = max(self.kernels, self.collectives) + 2 * (RATES["launch"] + 2 * self.wire.nodes * RATES["network_hop"])
        for g in groups:
            own = self.m["groups"][g] / (self.ranks if self.zero else 1)
            self.kernels += UPDATE_BYTES * own / RATES["memory"]
            if self.zero in (1, 2):
                self.gather(g)
        return self.kernels


def predict(trainer, config, gpus, network, zero, batch, seq, accum=1, shard=False, compress="none", recompute=True):
    m = model_of(trainer, config, gpus, zero, batch, seq, compress)
    step = Step(m, Wire(gpus, network), zero, shard, accum, compress != "none", recompute)
    first = step.once()
    busy = step.busy
    took = step.once() - first
    tokens = batch * seq * accum
    return {"step_s": took, "waits": 1 - (step.busy - busy) / took, "tokens_per_s_gpu": tokens / took,
            "mfu": m["token_flops"] * tokens / took / 989.5e12}


def table(trainer):
    rows = [("--zero 1", {"zero": 1}), ("--zero 3", {"zero": 3}), ("--zero 3 --shard-group 8", {"zero": 3, "shard": True}),
            ("--zero 1 --shard-group 8 --accum 8", {"zero": 1, "shard": True, "accum": 8}),
            ("--zero 0", {"zero": 0}), ("--zero 0 --compress powersgd:4", {"zero": 0, "compress": "powersgd:4"})]
    places = [(8, "IB"), (64, "IB"), (512, "IB"), (64, "Ethernet"), (512, "Ethernet")]
    print("| Llama 8B, `--batch 1 --seq 8192 --recompute block` | 8, NVLink | 64, IB | 512, IB | 64, Ethernet | 512, Ethernet |")
    print("|---" * 6 + "|")
    for name, how in rows:
        cells = []
        for gpus, network in places:
            r = predict(trainer, "llama-8b", gpus, network, batch=1, seq=8192, **how)
            cells.append(f"{r['step_s']:.2f} s, {100 * r['mfu']:.0f} %")
        print(f"| `{name}` | " + " | ".join(cells) + " |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--trainer", default="build/trainer")
    p.add_argument("--config", default="llama-8b")
    p.add_argument("--gpus", type=int)
    p.add_argument("--network", choices=NETWORKS, default="IB")
    p.add_argument("--zero", type=int, default=1)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--seq", type=int, default=8192)
    p.add_argument("--accum", type=int, default=1)
    p.add_argument("--shard", action="store_true", help="--shard-group of a node's GPUs")
    p.add_argument("--compress", default="none")
    p.add_argument("--keep", dest="recompute", action="store_false", help="--recompute none")
    p.add_argument("--json", action="store_true")
    a = vars(p.parse_args())
    as_json, gpus = a.pop("json"), a["gpus"]
    if gpus is None:
        return table(a["trainer"])
    r = predict(**a)
    print(json.dumps(r) if as_json else " ".join(f"{k}={v:.4g}" for k, v in r.items()))


if __name__ == "__main__":
    main()
