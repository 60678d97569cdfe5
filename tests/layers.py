#!/usr/bin/env python3
"""layers.py - walks #include "..." lines against the arrows of the house; exit 1 on a wrong one.

A part is a folder below; a file belongs to the longest one that its path begins with. A part may
include itself and what it names here. Headers must not form a ring of parts, whatever is allowed.
"""
import pathlib
import re
import sys

COMMON = {"common/base", "common/os", "common/hash", "common/codec", "common/xfer"}
AGENT = {f"agent/{p}" for p in ("pull", "peers", "shelf", "job", "preflight", "publish", "slurm")}
SERVER = {f"server/{p}" for p in
          ("net", "http", "gate", "repo", "cache", "store", "fetch", "peers", "sync", "sync/mirrord", "sync/exec", "sync/rsync", "rsync", "hub")}

ARROWS = {
    "common/base": {"common/os"},  # log takes a clock; arenas and lists need nothing
    "common/os": {"common/base"},
    "common/codec": {"common/base", "common/os"},
    "common/hash": {"common/base", "common/os", "common/codec"},
    "common/xfer": {"common/base", "common/os", "common/codec"},
    "kernels": COMMON,
    "agent/train": COMMON | {"kernels"},
    "agent/late": set(),  # libraries; nobody includes it
    "agent": COMMON | AGENT,
    **{part: COMMON | AGENT | {"agent"} for part in AGENT},  # agent.h, node.h: what the command line and the node said
    "server/net": COMMON,
    "server/http": COMMON | {"server/net"},
    "server/store": COMMON,
    "server/gate": COMMON | {
        "server/http",   # msg.h: judges requests
        "server/store",  # store.h: tokens are rows
    },
    "server/fetch": COMMON | {
        "server/http",  # msg.h: fields and lengths are the same on both sides
    },
    "server/cache": COMMON | {
        "server/store",
        "server/fetch",
        "server/http",  # body.h: a fill is a body that is still growing
        "server/net",   # loop.h: answers come back to the loop that asked
    },
    "server/repo": COMMON | {
        "server/http",   # msg.h
        "server/cache",  # want.h; struct answer for the reply's fields
        "server/fetch",  # origin.h: admission is asked when links are rewritten
        "server/store",  # tree.h: plans name heads and entries; batches for rows of a rewrite
    },
    "server/sync": COMMON | {"server/repo", "server/store", "server/fetch"},
    "server/sync/rsync": COMMON | {
        "server/sync",   # engine.h: what the pipeline asks
        "server/store",  # blobs that a delta begins from
    },
    "server/sync/mirrord": COMMON | {
        "server/sync",        # engine.h
        "server/store",       # nodes, blobs, their pieces
        "server/fetch",
        "server/sync/rsync",  # delta.h: which names are worth a delta
    },
    "server/sync/exec": COMMON | {
        "server/sync",        # engine.h
        "server/store",       # where the working tree lies; which paths can be
        "server/sync/rsync",  # lists, their order, its URLs
    },
    "server/rsync": COMMON | {
        "server/store",
        "server/net",
        "server/gate",       # who may, how much: as for requests
        "server/http",       # pace.h: a client's answers share one; principal.h
        "server/sync/rsync",  # the wire's numbers, frames and lists are the same from both ends
    },
    "server/hub": COMMON | {
        "server",        # daemon.h: which repos there are
        "server/repo",   # a Hub's keys, paths, manifests; the adapter's plan
        "server/cache",  # what is here, and what is fetched ahead of demand as a client would
        "server/store",  # trees, sessions, pins
        "server/http",   # body.h: how far a porter's object has come
        "server/net",    # loop.h
    },
    "server/peers": COMMON,
    "server/ctl": COMMON,
    # The top: conf, daemon, serve and admin see all of the server but its control tool.
    "server": COMMON | SERVER | {"server/serve", "server/admin"},
    "server/serve": COMMON | SERVER | {"server", "server/admin"},
    "server/admin": COMMON | SERVER | {"server"},  # daemon.h
}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def part_of(path):
    best = ""
    for part in ARROWS:
        if path.startswith(part + "/") and len(part) > len(best):
            best = part
    return best


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    wrong, header_arrows, files = [], {}, 0
    for top in ("common", "kernels", "server", "agent"):
        for f in sorted((root / top).rglob("*")):
            if f.suffix not in (".c", ".h", ".cu", ".def"):
                continue
            files += 1
            name = str(f.relative_to(root))
            mine = part_of(name)
            for target in INCLUDE.findall(f.read_text(errors="replace")):
                if "/" not in target or target.startswith("gen/"):
                    continue
                theirs = part_of(target)
                if theirs == mine:
                    continue
                if theirs not in ARROWS[mine]:
                    wrong.append(f"{name}: {mine} may not include {target}")
                elif f.suffix == ".h":
                    header_arrows.setdefault(mine, {})[theirs] = name

    for ring in rings(header_arrows):
        wrong.append("headers form a ring: " + " -> ".join(ring))
    for line in wrong:
        print(line)
    print(f"check-layers: {files} files, {len(wrong)} wrong")
    return 1 if wrong else 0


def rings(graph):
    """Every ring once, by a depth-first walk that colours what it has finished."""
    done, path, found = set(), [], []

    def walk(node):
        if node in path:
            found.append(path[path.index(node):] + [node])
            return
        if node in done:
            return
        path.append(node)
        for nxt in sorted(graph.get(node, ())):
            walk(nxt)
        path.pop()
        done.add(node)

    for node in sorted(graph):
        walk(node)
    return found


if __name__ == "__main__":
    sys.exit(main())
