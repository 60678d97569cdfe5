#!/usr/bin/env python3
"""layers.py - walks #include "..." lines against the arrows of the house; exit 1 on a wrong one.

A part is a folder below; a file belongs to the longest one that its path begins with. A part may
include itself and what it names here: a part, or one header of it. What nobody uses is no arrow.
Parts form no ring, be it by headers or by sources, and headers none among themselves. In the agent no
files do either, a source and its header counting as one.

  layers.py            walks them
  layers.py --table    the table of docs/architecture.md: which folders each one includes, the lowest first
  layers.py --alone    headers that no source compiles first

And of each file: includes are written from the root, a source's own header comes first (so that it
compiles alone; `make check-layers` compiles the others, --alone names them), guards are the path.
"""
import pathlib
import re
import sys

COMMON = {"common/base", "common/os", "common/hash", "common/codec", "common/xfer"}
REPO = {"server/repo"} | {f"server/repo/{p}" for p in ("conda", "generic", "hf", "hosted", "oci", "pypi", "python")}
SYNC = {"server/sync"} | {f"server/sync/{p}" for p in ("exec", "mirrord", "rsync")}
ADAPTER = COMMON | {"server/repo", "server/http/msg.h", "server/cache/lookup.h"}

ARROWS = {
    "common/base": {"common/os/log_writer.h"},  # a thread writes the log; arenas and lists need nothing
    "common/os": {"common/base"},
    "common/codec": {"common/base", "common/os"},
    "common/hash": {"common/base", "common/os", "common/codec"},
    "common/xfer": {"common/base", "common/os", "common/codec"},
    "kernels": COMMON,
    "agent/train": COMMON | {"kernels"},
    "agent/lazy": set(),  # libraries; nobody includes it
    # The agent: its cache lies lowest, then what every verb knows (agent.h, node.h, ask.h), then what verbs do, then the verbs.
    "agent/cache": COMMON,
    "agent": COMMON | {"agent/cache/cache.h"},
    "agent/pull": COMMON | {"agent", "agent/cache"},
    "agent/peers": COMMON | {"agent", "agent/pull/peer_ops.h"},  # called back by a pull
    "agent/preflight": COMMON | {"agent"},
    "agent/publish": COMMON | {"agent", "agent/cache"},
    "agent/job": COMMON | {"agent", "agent/peers/peers.h", "agent/preflight", "agent/publish/publish.h", "agent/pull/artifact.h", "agent/cache"},
    "agent/slurm": COMMON | {
        "agent",
        "agent/peers/peers.h",
        "agent/preflight/preflight.h",
        "agent/pull/artifact.h",
        "agent/cache",
    },
    "agent/verbs": COMMON | {
        "agent",
        "agent/job",
        "agent/peers/peers.h",
        "agent/preflight",
        "agent/publish/publish.h",
        "agent/pull/artifact.h",
        "agent/cache",
        "agent/slurm",
    },
    "server/net": COMMON,
    "server/http": COMMON | {"server/net"},
    "server/store": COMMON,
    "server/upload": COMMON | {"server/store"},
    "server/gate": COMMON | {
        "server/http/msg.h",        # judges requests
        "server/http/h1_parse.h",   # what may stand in a host's name
        "server/http/pace.h",
        "server/http/principal.h",  # whom it finds
        "server/store/store.h",     # tokens are rows
    },
    "server/fetch": COMMON | {
        "server/http/msg.h",  # fields and lengths are the same on both sides
    },
    "server/cache": COMMON | {
        "server/store",
        "server/fetch",
        "server/http/body.h",  # a fill is a body that is still growing
        "server/http/msg.h",
        "server/http/status.h",
        "server/net/loop.h",   # answers come back to the loop that asked
    },
    "server/repo": COMMON | {
        "server/http/msg.h",
        "server/http/principal.h",
        "server/cache",           # want.h; struct answer for the reply's fields
        "server/upload",          # plans name puts, and who reads their bodies
        "server/page",            # a folder is a page, too
    },
    # Adapters know the door, and of their brothers what both speak.
    "server/repo/generic": ADAPTER,
    "server/repo/pypi": ADAPTER,
    "server/repo/python": COMMON,
    "server/repo/oci": ADAPTER,
    # files that are here without a listing; whether a digest is still everybody's
    "server/repo/hf": ADAPTER | {"server/cache/object.h", "server/store/store.h", "server/http/range.h",
                                "server/http/body.h"},  # a framing makes one of another
    "server/repo/conda": ADAPTER | {
        "server/repo/generic/synced.h",
        "server/store/tree.h",
    },
    "server/repo/hosted": ADAPTER | {
        "server/store",             # trees, their history
        "server/upload",
        "server/repo/hf/path.h",    # it speaks as a Hub,
        "server/repo/hf/xet.h",
        "server/repo/hf/xorb.h",
        "server/repo/hf/xshard.h",
        "server/repo/oci/path.h",   # a registry
        "server/repo/pypi",         # and an index do
        "server/repo/python",
    },
    "server/plan": COMMON | {
        "server/repo",         # whose plans it makes
        "server/cache",        # documents that a plan needs
        "server/gate",         # whether the caller has a right that a plan asks for
        "server/net/loop.h",
        "server/store/tree.h",  # rows, heads, entries
        "server/http/body_memory.h",  # what gatherings hold counts
    },
    "server/sync": COMMON | REPO | {
        "server/cluster/claim.h",  # one mirror of a cluster runs a sync
        "server/store",
        "server/fetch",
    },
    "server/sync/rsync": COMMON | {
        "server/sync",   # engine.h: what the pipeline asks
        "server/store",  # blobs that a delta begins from
    },
    "server/sync/mirrord": COMMON | {
        "server/sync",        # engine.h
        "server/store",       # nodes, blobs, their pieces
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
        "server/live",   # the repos in force
        "server/plan",   # the adapter's plan
        "server/repo",
        "server/repo/hf",  # a Hub's keys, paths, manifests
        "server/repo/hosted",
        "server/cache",  # what is here, and what is fetched ahead of demand as a client would
        "server/store",  # trees, pins
        "server/upload", # sessions: what a bundle brings is held by one
        "server/net",    # loop.h
    },
    "server/registry": COMMON | {
        "server/request",        # an entrance of its own
        "server/repo/oci",     # paths, codes
        "server/repo/repo.h",  # whose a path is
    },
    "server/conf": COMMON | {  # settings of each part, as it takes them
        "server/cache/cache.h",
        "server/cluster/cluster.h",
        "server/gate/gate.h",
        "server/http/server.h",
        "server/net/tls.h",       # until when a certificate is valid
        "server/peers/peers.h",
        "server/repo",
        "server/repo/oci/names.h",
        "server/rsync",
        "server/store/store.h",
        "server/sync/sync.h",
    },
    "server/live": COMMON | {  # the repos in force
        "server/conf/conf.h",
        "server/sync/sync.h",  # the name of a synced tree
    },
    "server/page": COMMON,
    "server/cluster": COMMON | {
        "server/cache/lookup.h",  # content that the cache streams
        "server/cache/neighbor.h",  # which mirror fetches an object
        "server/fetch",         # requests to S3
        "server/http/msg.h",    # their fields
        "server/store",         # batches, and the rows that they are about
    },
    "server/peers": COMMON,
    "server/ctl": COMMON,
    "server/request": COMMON | {  # the corridor
        "server/cluster/cluster.h",  # what lies in the bucket
        "server/cluster/relay.h",    # which mirror has an upload
        "server/cluster/relay_fetch.h",  # what it is asked for
        "server/cache",
        "server/fetch/origin.h",  # what a repo's origins were asked is counted with what was answered
        "server/gate",
        "server/http",
        "server/live",    # the repos in force
        "server/plan",    # makes plans of requests
        "server/page",
        "server/repo",
        "server/store",
        "server/sync/mirrord/protocol.h",  # what a mirror asks another for
        "server/upload",
    },
    "server/admin": COMMON | REPO | SYNC | {  # shows all parts, and steers them
        "server/cache",
        "server/cluster/cluster.h",
        "server/fetch",
        "server/gate",
        "server/http",
        "server/hub",
        "server/live",
        "server/plan",    # for how long an object is good
        "server/page",
        "server/rsync",
        "server/request/serve.h",
        "server/request/traffic.h",
        "server/store",
        "server/upload/upload.h",  # what a drain waits for
    },
    "server/own": COMMON | {  # the front entrance
        "server/admin",       # the pages it gives
        "server/cluster/cluster.h",  # what other mirrors say
        "server/cluster/relay_fetch.h",  # and ask for
        "server/http",
        "server/page",
        "server/repo/hf/synced.h",  # a repository's name in a path
        "server/request",
        "server/store",
    },
    "server": COMMON | {  # the daemon, which makes all of them but for the control tool
        "server/admin",
        "server/cluster/cluster.h",
        "server/cluster/relay_fetch.h",
        "server/cluster/probe.h",  # a check without a daemon
        "server/conf/schema.h",
        "server/http/body_memory.h",
        "server/hub",
        "server/live",
        "server/plan",
        "server/own/own.h",
        "server/registry/registry.h",
        "server/repo/capability.h",  # mirrors of a cluster share its key
        "server/request",
        "server/store",
        "server/sync/sync.h",
        "server/upload/upload.h",
    },
}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


FOLDERS = ("common", "kernels", "server", "agent")
GENERATED = re.compile(r"gen/|[^/]+\.gen\.h$")
GUARD = re.compile(r"#ifndef (\w+)\n#define (\w+)\n")
GUARDLESS = {"kernels/cpu/each_real.h"}  # it is included more than once, on purpose


def part_of(path):
    best = ""
    for part in ARROWS:
        if path.startswith(part + "/") and len(part) > len(best):
            best = part
    return best


def folder_of(part):
    return "/".join(part.split("/")[:2])


class House:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.wrong, self.used = [], set()
        self.header_arrows = {}  # part -> parts, by headers
        self.arrows = {}         # the same, by all files
        self.headers = {}        # header -> headers
        self.modules = {}        # of the agent: file -> files, without their suffix
        self.files = [f for top in FOLDERS for f in sorted((self.root / top).rglob("*"))
                      if f.suffix in (".c", ".h", ".cu", ".def")]

    def walk(self):
        for f in self.files:
            name, text = str(f.relative_to(self.root)), f.read_text(errors="replace")
            targets = [t for t in INCLUDE.findall(text) if not GENERATED.match(t)]
            self.look_at(name, text, targets)
            for target in targets:
                self.follow(name, target)

    def look_at(self, name, text, targets):
        own = name[:-2] + ".h"
        if name.endswith(".c") and (self.root / own).exists() and targets[:1] != [own]:
            self.wrong.append(f"{name}: includes its own header first, so that it is seen to compile alone")
        if name.endswith(".h") and name not in GUARDLESS:
            want = re.sub(r"\W", "_", name).upper()
            if (want, want) not in GUARD.findall(text):
                self.wrong.append(f"{name}: its guard is {want}")

    def follow(self, name, target):
        mine, theirs = part_of(name), part_of(target)
        if "/" not in target:
            self.wrong.append(f"{name}: includes are written from the root, not {target}")
            return
        if name.endswith(".h"):
            self.headers.setdefault(name, set()).add(target)
        if name.startswith("agent/") and not name.startswith("agent/train/") and target.endswith(".h") and name[:-2] != target[:-2]:
            self.modules.setdefault(name[:-2], set()).add(target[:-2])
        if theirs == mine:
            return
        arrow = target if target in ARROWS[mine] else theirs
        self.used.add((mine, arrow))
        if arrow not in ARROWS[mine]:
            self.wrong.append(f"{name}: {mine} may not include {target}")
            return
        if arrow == target and mine.startswith("common"):
            return  # a log's lines are written by a thread of common/os
        if name.endswith(".h"):
            self.header_arrows.setdefault(mine, set()).add(theirs)
        self.arrows.setdefault(mine, set()).add(theirs)

    def judge(self):
        for what, graph in (("headers of parts", self.header_arrows), ("parts", self.arrows), ("headers", self.headers), ("files", self.modules)):
            for ring in rings(graph):
                self.wrong.append(f"{what} form a ring: " + " -> ".join(ring))
        for part, arrows in ARROWS.items():
            for arrow in sorted(arrows - COMMON - REPO - SYNC - ADAPTER):
                if (part, arrow) not in self.used:
                    self.wrong.append(f"{part}: nobody uses its arrow to {arrow}")

    def table(self):
        """Folders of the server and the agent, each with those that it includes beside common/: a line may name what stands above it."""
        graph = {}
        for part in ARROWS:
            graph.setdefault(folder_of(part), set())
        for mine, parts in self.arrows.items():
            graph[folder_of(mine)] |= {folder_of(theirs) for theirs in parts} - {folder_of(mine)}
        order = []

        def place(folder):
            for lower in sorted(graph[folder]):
                place(lower)
            if folder not in order:
                order.append(folder)
        for folder in sorted(graph):
            place(folder)
        rows = [(f, sorted((g for g in graph[f] if not g.startswith("common")), key=order.index)) for f in order]
        return "\n".join(["| folder | includes |", "|---|---|", *(
            f"| `{f}` | {', '.join(g.removeprefix(f.split('/')[0] + '/') for g in lower) or '-'} |"
            for f, lower in rows if f.split("/")[0] in ("server", "agent"))])

    def alone(self):
        """Headers that no source compiles first."""
        return [f for f in self.files if f.suffix == ".h" and not f.with_suffix(".c").exists()
                and str(f.relative_to(self.root)) not in GUARDLESS]


def main():
    here = pathlib.Path(__file__).resolve().parent.parent
    words = sys.argv[1:]
    if words[:1] == ["--alone"]:
        print("\n".join(str(f.relative_to(here)) for f in House(here).alone()))
        return 0
    if words == ["--table"]:
        house = House(here)
        house.walk()
        print(house.table())
        return 0
    house = House(words[0] if words else here)
    house.walk()
    house.judge()
    for line in house.wrong:
        print(line)
    print(f"check-layers: {len(house.files)} files, {len(house.wrong)} wrong")
    return 1 if house.wrong else 0


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
