"""corner.py - a folder of an origin, and of the repo in front of it, that is one test's own, so that many tests share a mirrord.

For tests after which the next finds all as before: no restart, no reload, nothing that is counted or listed for the whole repo.
"""
import itertools

_count = itertools.count()


class Corner:
    def __init__(self, m, origin, repo="data"):
        self.m, self.origin, self.folder = m, origin, f"/{next(_count)}"
        self.name = repo + self.folder  # as mirrorctl and scopes write it
        self.settle, self.metric = m.settle, m.metric

    def put(self, path, **script):
        return self.origin.put(self.folder + path, **script)

    def bytes_of(self, path, *span):
        return self.origin.bytes_of(self.folder + path, *span)

    def url(self, path, *wire):
        return self.m.url(f"/{self.name}{path}", *wire)

    def get(self, path, *wire, **how):
        return self.m.get(f"/{self.name}{path}", *wire, **how)
