"""power.py - what a disk may hold after a power cut, from the log that recorder.c wrote.

    disk = Disk().scan(folder); ... record ...; disk.open(log); disk.play(until); disk.image(empty, Kept.NOTHING)

A file's bytes are safe once an fsync of the file has ended that began after they were written; a name once an fsync of its
folder did. The rest is at the disk's pleasure. What every file system promises is kept: a rename is one step, and changes
of one name happen in order. What only some promise is not: that names appear in the order of their making, that a file's
fsync saves its name, that bytes come before the size.
"""
import collections
import enum
import mmap
import os
import random
import struct

HEAD = struct.Struct("<IIQQQII")
PAGE = 4096
CREATE, MKDIR, LINK, UNLINK, RMDIR, RENAME, WRITE, TRUNCATE, ALLOCATE, SYNC = range(10)
Record = collections.namedtuple("Record", "at op ino a first second data")


class Kept(enum.Enum):
    """Of what no fsync had covered: how much is on the disk all the same."""
    NOTHING = 0
    NAMES = 1    # names and sizes, but no bytes: zeros, as delayed allocation leaves them
    SOME = 2     # any page, any name
    ALL = 3      # as after a SIGKILL


def records(view, at=0, until=None):
    end = len(view) if until is None else min(until, len(view))
    while at + HEAD.size <= end:
        size, op, ino, a, _, n1, n2 = HEAD.unpack_from(view, at)
        if at + size > end:
            return
        p = at + HEAD.size
        yield Record(at, op, ino, a, str(view[p:p + n1], "utf-8"), str(view[p + n1:p + n1 + n2], "utf-8"),
                     view[p + n1 + n2:at + size])
        at += size


class File:
    """Bytes by pages: what is safe, and the changes since in their order."""

    def __init__(self):
        self.pages = {}
        self.size = 0
        self.changes = []  # (at, op, offset or size, data)

    @classmethod
    def read(cls, path):
        """Its bytes, without the holes."""
        node = cls()
        with open(path, "rb") as f:
            node.size = os.fstat(f.fileno()).st_size
            at = 0
            while at < node.size:
                try:
                    at = os.lseek(f.fileno(), at, os.SEEK_DATA) // PAGE * PAGE
                except OSError:
                    break
                node.pages[at // PAGE] = os.pread(f.fileno(), PAGE, at).ljust(PAGE, b"\0")
                at += PAGE
        return node

    def change(self, pages, size, op, a, data, keep):
        """keep(page) says of each page of a write: its bytes (True), zeros (None), or the old ones (False)."""
        if op == TRUNCATE:
            for n in [n for n in pages if n * PAGE >= a]:
                del pages[n]
            if a % PAGE and a // PAGE in pages:
                pages[a // PAGE] = bytes(pages[a // PAGE][:a % PAGE]).ljust(PAGE, b"\0")
            return a
        if op == ALLOCATE:
            return max(size, a)
        end = a + len(data)
        for n in range(a // PAGE, (end + PAGE - 1) // PAGE):
            first, last = max(a, n * PAGE), min(end, (n + 1) * PAGE)
            kept = keep(n)
            if kept is False:
                continue
            size = max(size, last)
            if kept:
                part = data[first - a:last - a]
                if last - first < PAGE:
                    old = bytearray(pages.get(n) or PAGE)
                    old[first % PAGE:first % PAGE + len(part)] = part
                    part = old
                pages[n] = part
        return size

    def sync(self, began):
        later = [c for c in self.changes if c[0] >= began]
        for at, op, a, data in self.changes:
            if at < began:
                self.size = self.change(self.pages, self.size, op, a, data, lambda n: True)
        self.changes = later

    def write(self, path, keep):
        pages, size = dict(self.pages), self.size
        for _, op, a, data in self.changes:
            if op == WRITE or keep(-1):
                size = self.change(pages, size, op, a, data, keep)
        with open(path, "wb") as f:
            f.truncate(size)
            for n in sorted(pages):
                if n * PAGE < size:
                    f.seek(n * PAGE)
                    f.write(pages[n][:size - n * PAGE])
        return size


class Folder:
    def __init__(self):
        self.names = {}    # as they are
        self.safe = {}     # as the disk has them for certain
        self.steps = []    # not yet certain


class Step:
    """One change of names: all of it happens or nothing does, after the earlier ones of the same names."""

    def __init__(self, at, effects, before):
        self.at, self.effects, self.before, self.done = at, effects, before, False

    def settle(self):
        if not self.done:
            self.done = True
            for step in self.before:
                step.settle()
            apply(self.effects, lambda folder: folder.safe)
            for folder in {folder for folder, _, _ in self.effects}:
                folder.steps.remove(self)
            self.before = ()


def apply(effects, names_of):
    for folder, name, node in effects:
        if node is None:
            names_of(folder).pop(name, None)
        else:
            names_of(folder)[name] = node


class Disk:
    def __init__(self):
        self.root = Folder()
        self.nodes = {}   # by inode number, as it is now
        self.last = {}    # (folder, name) -> the newest step that touches it
        self.at = 0
        self.view = memoryview(b"")

    def scan(self, where):
        """The folder as it is when recording begins: all of it is safe."""
        self.nodes.clear()
        self.root = self.scan_folder(where)
        return self

    def scan_folder(self, where):
        folder = Folder()
        with os.scandir(where) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    node = self.scan_folder(entry.path)
                else:
                    node = self.nodes.get(entry.inode()) or File.read(entry.path)
                self.nodes[entry.inode()] = folder.names[entry.name] = node
        folder.safe = dict(folder.names)
        return folder

    def open(self, log):
        with open(log, "rb") as f:
            self.view = memoryview(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ))
        return self

    def play(self, until=None):
        for r in records(self.view, self.at, until):
            self.take(r)
            self.at = r.at + HEAD.size + len(r.first.encode()) + len(r.second.encode()) + len(r.data)

    def take(self, r):
        if r.op in (WRITE, TRUNCATE, ALLOCATE):
            self.nodes[r.ino].changes.append((r.at, r.op, r.a, r.data))
        elif r.op == SYNC:
            self.sync(self.nodes.get(r.ino, self.root), r.a)
        elif r.op == CREATE:
            self.nodes[r.ino] = File()
            if r.first:
                self.step(r, [(*self.find(r.first), self.nodes[r.ino])])
        elif r.op == MKDIR and r.first:  # the root's own comes first, without a name
            self.nodes[r.ino] = Folder()
            self.step(r, [(*self.find(r.first), self.nodes[r.ino])])
        elif r.op == LINK:
            self.step(r, [(*self.find(r.first), self.nodes[r.ino])])
        elif r.op in (UNLINK, RMDIR):
            self.step(r, [(*self.find(r.first), None)])
        elif r.op == RENAME:
            folder, name = self.find(r.first)
            if name in folder.names:  # else stdio made it, and nobody saw
                self.step(r, [(*self.find(r.second), folder.names[name]), (folder, name, None)])

    def find(self, path):
        folder = self.root
        *parents, name = path.split("/")
        for parent in parents:
            folder = folder.names[parent]
        return folder, name

    def step(self, r, effects):
        keys = [(id(folder), name) for folder, name, _ in effects]
        before = {s for s in map(self.last.get, keys) if s is not None and not s.done}
        s = Step(r.at, effects, before)
        self.last.update((k, s) for k in keys)
        apply(effects, lambda folder: folder.names)
        for folder in {folder for folder, _, _ in effects}:
            folder.steps.append(s)

    @staticmethod
    def sync(node, began):
        if isinstance(node, File):
            node.sync(began)
        else:
            for s in [s for s in node.steps if s.at < began]:
                s.settle()

    # --- after the cut ---

    def image(self, where, kept, rng=random):
        """Writes into an empty folder what the disk holds now. kept: of what was not safe."""
        odds = rng.choice((0.1, 0.5, 0.9))
        keep_step = {Kept.NOTHING: lambda: False, Kept.NAMES: lambda: True, Kept.ALL: lambda: True,
                     Kept.SOME: lambda: rng.random() < odds}[kept]
        keep_page = {Kept.NOTHING: lambda n: False, Kept.NAMES: lambda n: None, Kept.ALL: lambda n: True,
                     Kept.SOME: lambda n: rng.random() < odds or rng.choice((None, False))}[kept]
        names = {}

        def names_of(folder):
            return names.setdefault(id(folder), dict(folder.safe))

        survived = set()
        for s in self.unsafe_steps():
            if keep_step() and all(b.done or b in survived for b in s.before):
                survived.add(s)
                apply(s.effects, names_of)
        self.write(self.root, where, names_of, keep_page, {})

    def unsafe_steps(self):
        found, folders = set(), [self.root, *(n for n in self.nodes.values() if isinstance(n, Folder))]
        for folder in folders:
            found.update(folder.steps)
        return sorted(found, key=lambda s: s.at)

    def write(self, folder, where, names_of, keep_page, written):
        for name, node in names_of(folder).items():
            path = os.path.join(where, name)
            if isinstance(node, Folder):
                os.mkdir(path)
                self.write(node, path, names_of, keep_page, written)
            elif id(node) in written:
                os.link(written[id(node)], path)
            else:
                written[id(node)] = path
                node.write(path, keep_page)
