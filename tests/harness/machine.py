"""machine.py - a bare Debian, made by debootstrap and booted with systemd. It needs root, and no container runtime.

    tar = bare_root(folder)                 # made once a build folder, from the archive that apt uses here; or a skip
    with Machine(tar, tmp_path) as m:
        m.prepare("apt-get install -qq --download-only curl")    # before the boot, with the host's network
        m.boot()
        m.run("systemctl enable --now mirrord")                  # a shell's line, as root; m.run(..., ok=(0, 1))
        with m.network():
            origin = Origin()               # listens on the machine's own loopback, which is all the network that it has

The machine has namespaces of its own for mounts, processes, network and cgroups. All of its processes end with it.
"""
import contextlib
import ctypes
import fcntl
import os
import pathlib
import platform
import re
import shutil
import subprocess
import time

import pytest

from harness.mirrord import BUILD

CLONE_NEWNET = 0x40000000
ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "TERM": "dumb", "LANG": "C.UTF-8",
       "DEBIAN_FRONTEND": "noninteractive"}
PACKAGES = ("systemd", "systemd-sysv", "ca-certificates", "curl")

# In memory, because dpkg syncs each file.
DEBOOTSTRAP = """
mount -t tmpfs -o mode=755 none "$1"
debootstrap --variant=minbase --include="$2" "$3" "$1/root" "$4" >&2
rm -f "$1"/root/var/cache/apt/archives/*.deb
tar -C "$1/root" -cf "$5" .
"""
MOUNTS = """
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t tmpfs -o mode=755 dev dev
for d in null zero full random urandom tty; do : > dev/$d; mount --bind /dev/$d dev/$d; done
ln -s /proc/self/fd dev/fd
"""
PREPARE = MOUNTS + """
exec chroot . sh -ec "$2"
"""
BOOT = MOUNTS + """
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs shm dev/shm
mount -t tmpfs -o mode=755 run run
ip link set lo up
hostname mirror
mkdir -p .host
pivot_root . .host
umount -l .host
rmdir .host
exec "$2" $3
"""
NAMESPACES = ("--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork", "--kill-child", "--propagation", "private")


def settings():
    """The archive's address, the release's name and the environment for apt's proxy, from apt's settings here; or None."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    told = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(CODENAME) $(COMPONENT)", "Created-By: Packages"],
                          capture_output=True, text=True, check=False).stdout.splitlines()
    proxy = subprocess.run(["apt-config", "shell", "P", "Acquire::http::Proxy"], capture_output=True, text=True, check=False).stdout
    for uri, *names, component in (line.split() for line in told if len(line.split()) >= 3):
        if release and release in names and component == "main":
            return uri, release, {"http_proxy": m[1]} if (m := re.match("P='(.*)'", proxy)) else {}
    return None


def missing():
    """Why no machine can be made here, or None."""
    if os.geteuid() != 0:
        return "only root can boot a machine"
    for program in ("debootstrap", "unshare", "nsenter", "ip"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if settings() is None:
        return "this is no Debian with an archive"
    cgroup = cgroups()
    if cgroup is None or not os.access(cgroup, os.W_OK) or subprocess.run(
            ["unshare", *NAMESPACES, "sh", "-c", "mount -t tmpfs none /mnt && mkdir /mnt/c && mount -t cgroup2 none /mnt/c && ip link set lo up"],
            capture_output=True, check=False).returncode != 0:
        return "this kernel lets us make no namespaces"
    return None


def cgroups():
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return pathlib.Path(where)
    return None


def bare_root(folder):
    """A tar file with a bare system, kept in the build folder."""
    if why := missing():
        pytest.skip(why)
    uri, release, proxy = settings()
    tar = BUILD / f"bare-{release}.tar"
    with open(BUILD / "bare.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tar.exists():
            new = folder / "bare.tar"
            (folder / "bare").mkdir()
            done = subprocess.run(["unshare", "-m", "sh", "-ec", DEBOOTSTRAP, "sh", folder / "bare", ",".join(PACKAGES), release, uri, new],
                                  env={**os.environ, **proxy}, capture_output=True, text=True, check=False)
            if "Failed getting release file" in done.stderr:
                pytest.skip("the archive cannot be reached")
            assert done.returncode == 0, done.stderr[-4000:]
            shutil.move(new, tar)
    return tar


class Machine:
    def __init__(self, tar, folder):
        self.root, self.log, self.process, self.pid = folder / "machine", folder / "machine.log", None, None
        self.root.mkdir()
        subprocess.run(["tar", "-C", self.root, "-xf", tar], check=True)
        self.write("/etc/hostname", "mirror\n")
        self.write("/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 mirror\n")
        self.write("/etc/dpkg/dpkg.cfg.d/fast", "force-unsafe-io\n")
        self.write("/etc/apt/apt.conf.d/90test", 'APT::Get::Assume-Yes "true";\nAcquire::Languages "none";\nDpkg::Use-Pty "false";\n')
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        self.cgroup = cgroups() / f"machine.{os.getpid()}.{id(self)}"

    def __enter__(self):
        return self

    def __exit__(self, *args):
        if self.process is not None:
            self.process.kill()  # --kill-child ends the first process of the namespace, and the kernel all others
            self.process.wait()
            for folder in [*reversed([f for f in self.cgroup.rglob("*") if f.is_dir()]), self.cgroup]:
                self.until(lambda f=folder: self.gone(f))
        shutil.rmtree(self.root)

    @staticmethod
    def gone(folder):
        with contextlib.suppress(OSError):
            folder.rmdir()
        return not folder.exists()

    @staticmethod
    def until(what):
        while not (value := what()):
            time.sleep(0.1)
        return value

    def at(self, path):
        return self.root / str(path).lstrip("/")

    def write(self, path, text):
        self.at(path).parent.mkdir(parents=True, exist_ok=True)
        self.at(path).write_text(text)

    def prepare(self, command):
        """Runs a command in the folder before the boot, with the host's network."""
        done = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-ec", PREPARE, "sh", self.root, command],
                              env={**ENV, **settings()[2]}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stdout[-4000:] + done.stderr[-4000:])
        return done.stdout

    def boot(self):
        self.cgroup.mkdir()
        into = f"echo $$ > {self.cgroup}/cgroup.procs; exec \"$@\""
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-ec", into, "sh", "unshare", *NAMESPACES, "sh", "-ec", BOOT, "sh", self.root, "/lib/systemd/systemd",
                 "--log-target=console --show-status=0"],
                env={**ENV, "container": "other"}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        self.pid = int(self.until(lambda: self.process.poll() is None and children.read_text() or self.ended()))
        self.until(lambda: pathlib.Path(f"/proc/{self.pid}/comm").read_text() == "systemd\n" or self.ended())
        self.until(lambda: self.run("systemctl is-system-running", ok=None).strip() in ("running", "degraded") or self.ended())

    def ended(self):
        assert self.process.poll() is None, self.log.read_text()
        return False

    def run(self, command, cwd="/root", ok=(0,), **env):
        """Returns what a command prints. ok: the exit codes that are right; None: all."""
        done = subprocess.run(["nsenter", "-t", str(self.pid), "--all", "--root", "--wd", "sh", "-c", f"cd {cwd} && {{ {command}\n}}"],
                              env={**ENV, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert ok is None or done.returncode in ok, f"{command}\nended with {done.returncode}:\n{done.stdout[-6000:]}"
        return done.stdout

    @contextlib.contextmanager
    def network(self):
        """Sockets that this thread makes in it belong to the machine."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net", "rb") as ours, open(f"/proc/{self.pid}/ns/net", "rb") as theirs:
            def enter(which):
                if libc.setns(which.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            enter(theirs)
            try:
                yield
            finally:
                enter(ours)
