"""netns.py - hosts of a network of their own, each in a network namespace with a veth to one bridge, which this process is at, too.

    with Net(3) as net:
        net.address(0)                     # of a host
        net.command(0)                     # what runs a program there, for Popen
        net.cut(0, net.outside, "in")      # what comes from there is dropped, "out": what goes there, "both"
        net.heal()

This process has two addresses there: `outside`, from which it connects, and `bucket`, for a server, so that one can be cut off and the
other not. It needs root, iproute2 and iptables; missing() says what is lacking.
"""
import functools
import os
import shutil
import subprocess


def sh(*words, check=True):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{' '.join(map(str, words))}: {done.stderr}"
    return done


@functools.cache
def missing():
    """In words, or None."""
    for program in ("ip", "iptables"):
        if not shutil.which(program):
            return f"{program} is not installed"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"mrd-{os.getpid()}-try"
    done = sh("ip", "netns", "add", name, check=False)
    if done.returncode == 0:
        done = sh("ip", "netns", "exec", name, "iptables", "-w", "-A", "INPUT", "-s", "198.18.0.1", "-j", "DROP", check=False)
        sh("ip", "netns", "del", name, check=False)
    return None if done.returncode == 0 else f"network namespaces cannot be made here: {done.stderr.strip()}"


class Net:
    def __init__(self, hosts):
        self.hosts, self.id = hosts, os.getpid()
        self.link, self.subnet = f"mrd{self.id}", self.free_subnet()
        self.outside, self.bucket = f"{self.subnet}.1", f"{self.subnet}.2"

    @staticmethod
    def free_subnet():
        """Of 198.18.0.0/15, which is for tests of networks."""
        used = sh("ip", "-o", "-4", "addr").stdout
        return next(net for n in range(1000) if (net := f"198.18.{(os.getpid() + n) % 250 + 1}") + "." not in used)

    def __enter__(self):
        try:
            self.lay()
        except BaseException:
            self.__exit__()
            raise
        return self

    def lay(self):
        """The bridge has a namespace of its own, where no rules of this machine's firewall are."""
        hub = self.name("hub")
        sh("ip", "netns", "add", hub)
        sh("ip", "-n", hub, "link", "add", "hub", "type", "bridge")
        sh("ip", "-n", hub, "link", "set", "hub", "up")
        sh("ip", "link", "add", self.link, "type", "veth", "peer", "name", "outside", "netns", hub)
        for address in (self.outside, self.bucket):
            sh("ip", "addr", "add", f"{address}/24", "dev", self.link)
        sh("ip", "link", "set", self.link, "up")
        ports = ["outside"]
        for i in range(self.hosts):
            sh("ip", "netns", "add", self.name(i))
            sh("ip", "link", "add", "eth0", "netns", self.name(i), "type", "veth", "peer", "name", f"host{i}", "netns", hub)
            sh("ip", "-n", self.name(i), "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                sh("ip", "-n", self.name(i), "link", "set", link, "up")
            ports.append(f"host{i}")
        for port in ports:
            sh("ip", "-n", hub, "link", "set", port, "master", "hub", "up")

    def __exit__(self, *_):
        for i in [*range(self.hosts), "hub"]:
            sh("ip", "netns", "del", self.name(i), check=False)
        sh("ip", "link", "del", self.link, check=False)

    def name(self, host):
        return f"mrd-{self.id}-{host}"

    def address(self, host):
        return f"{self.subnet}.{10 + host}"

    def command(self, host):
        """It becomes the program, so the process is the program's."""
        return ("ip", "netns", "exec", self.name(host))

    def cut(self, host, address, way="both"):
        """way: as the host sees it."""
        if way in ("in", "both"):
            sh(*self.command(host), "iptables", "-w", "-A", "INPUT", "-s", address, "-j", "DROP")
        if way in ("out", "both"):
            sh(*self.command(host), "iptables", "-w", "-A", "OUTPUT", "-d", address, "-j", "DROP")

    def heal(self, host=None):
        for i in range(self.hosts) if host is None else [host]:
            sh(*self.command(i), "iptables", "-w", "-F")
