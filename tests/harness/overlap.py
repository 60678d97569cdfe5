"""A timeline of what the host's GPU was asked for (SIMT_TRACE of tests/simt/runtime.h): how much of the wire's time lies under compute.

Kernels take a unit each, one after another on their stream; so do collectives, on theirs. An event's wait holds up its stream until the
record that it waits for has been reached.
"""
import collections
import pathlib

Collective = collections.namedtuple("Collective", "what bytes begin end hidden")


def read(path):
    for line in pathlib.Path(path).read_text().splitlines():
        stream, what, number = line.split()
        if what != "end" and not what.startswith("begin:"):
            yield int(stream), what, int(number)


def timeline(entries):
    """Collectives in the order of their beginning, each with how much of its time some kernel ran."""
    free, reached = collections.defaultdict(int), collections.defaultdict(int)
    busy, found = [], []
    for stream, what, number in entries:
        if what == "record":
            reached[number] = free[stream]
        elif what == "wait":
            free[stream] = max(free[stream], reached[number])
        elif what == "kernel":
            busy.append((free[stream], free[stream] + 1))
            free[stream] += 1
        else:
            found.append((what, number, free[stream], free[stream] + 1))
            free[stream] += 1
    under = {begin for begin, _ in busy}
    return [Collective(w, n, b, e, sum(t in under for t in range(b, e))) for w, n, b, e in sorted(found, key=lambda c: c[2])]
