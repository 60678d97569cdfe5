"""registries.py - this machine's own package registries, read from its clients' settings when asked; never a fixed host."""
import dataclasses
import functools
import os
import re
import shutil
import subprocess


@dataclasses.dataclass
class Archive:
    """A Debian archive that apt on this machine reads."""
    url: str      # with a '/' at the end
    release: str  # the folder below dists/
    component: str
    architecture: str
    keyring: str  # signed-by, or ""


def run(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def reachable(url):
    """Answers at once, whatever the status; None when it does, else why not."""
    probe = subprocess.run(["curl", "-sS", "-o", "/dev/null", "--max-time", "20", "-I", url], capture_output=True,
                           text=True, check=False)
    return None if probe.returncode == 0 else probe.stderr.strip() or f"curl exit {probe.returncode}"


@functools.cache
def apt_archive():
    """(Archive, None), or (None, reason). The first http(s) archive with a main component."""
    if not shutil.which("apt-get"):
        return None, "apt-get is not installed"
    targets = run(["apt-get", "indextargets", "--format", "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ARCHITECTURE)",
                   "Created-By: Packages"])
    for line in targets.splitlines():
        url, release, component, architecture = line.split("|")
        if re.match(r"https?://", url) and component == "main" and "-" not in release:
            why = reachable(f"{url}dists/{release}/InRelease")
            if why:
                return None, f"apt's archive is not reachable: {why}"
            return Archive(url, release, component, architecture, keyring_of(url)), None
    return None, "apt's settings name no http archive with a main component"


def keyring_of(url):
    """Signed-By of the deb822 stanza that names this archive."""
    folder = "/etc/apt/sources.list.d"
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.endswith(".sources"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                for stanza in re.split(r"\n\s*\n", f.read()):
                    key = re.search(r"^Signed-By:\s*(/\S+)", stanza, re.M)
                    if key and re.search(r"^URIs:.*" + re.escape(url.rstrip("/")) + r"/?(\s|$)", stanza, re.M):
                        return key[1]
    return ""


@functools.cache
def pip_index(python="python3"):
    """(URL of the simple index with a '/' at the end, None), or (None, reason)."""
    url = run([python, "-m", "pip", "config", "get", "global.index-url"]) or os.environ.get("PIP_INDEX_URL", "") or \
        run([python, "-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"])
    if not re.match(r"https?://", url):
        return None, "pip on this machine names no index"
    url = url.rstrip("/") + "/"
    why = reachable(url + "pip/")
    return (None, f"pip's index is not reachable: {why}") if why else (url, None)
