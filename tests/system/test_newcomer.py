"""docs/operations.md, read by somebody who has never run a mirror: each command of the page is run, in the page's order, on a bare Debian
with systemd (harness/machine.py), up to the purge. An upgrade from the version before runs the first ones.

A command is a line of an indented block, or words in backquotes that begin with a program or a noun of mirrorctl. What is in no
table below is typed as it stands there. FILLED_IN has the commands that leave something to the reader, NOT_RUN those that are not run,
CONFIGURATION the indented blocks that are no commands. A new command of the page is run here by itself, or fails until a table has it.

`make test` packs the build, and packs it again as the version before. `make test-heavy` runs `make deb` on the bare machine and builds
the version before from the last tag or, without one, from an older commit.
"""
import os
import re
import shutil
import subprocess

import pytest

from harness.hub import Hub
from harness.machine import Machine, bare_root
from harness.mirrord import BUILD, ROOT, SLOW
from harness.packing import UNCOMPRESSED, pack
from harness.python_index import Index
from harness.registry import Registry
from harness.tree_origin import TreeOrigin

pytestmark = [pytest.mark.xdist_group("newcomer"), pytest.mark.timeout(7200)]  # a bare system is downloaded, with heavy tests two versions are built

PAGE = ROOT / "docs/operations.md"
PROGRAMS = {"mirrord", "mirrorctl", "trainagent", "trainer", "make", "apt", "apt-get", "dpkg", "systemctl", "systemd-sysusers", "systemd-tmpfiles",
            "journalctl", "runuser", "sudo", "install", "chgrp", "chmod", "chown", "ln", "cp", "cat", "curl", "wget", "openssl", "certbot", "sbatch",
            "update-ca-certificates", "kill", "rsync"}
HEAVY = bool(os.environ.get("MIRROR_HEAVY"))

# Commands that leave something to the reader: what is typed for them.
FILLED_IN = {
    # It stays in the foreground; it gets a signal once it has answered.
    "mirrord -c FILE": "mirrord -c /root/own/mirrord.conf & until mirrorctl -c /root/own/mirrord.conf status; do sleep 0.1; done; kill $! && wait $!",
    # The editor needs a terminal, and somebody who types the block that follows.
    "systemctl edit mirrord": "SYSTEMD_EDITOR='cp /root/typed' script -qec 'systemctl edit mirrord' /dev/null",
    "systemctl reload": "systemctl reload mirrord",
    "mirrorctl cache rm --all REPO": "mirrorctl cache rm --all debian",
    # A key from elsewhere, in its folder.
    "chgrp mirrord key.pem; chmod 640 key.pem": "cp -r /etc/mirrord/tls /etc/mirrord/tls-mine && cd /etc/mirrord/tls-mine && chgrp mirrord key.pem; chmod 640 key.pem",
    "cat /etc/ssl/certs/ca-certificates.crt cert.pem > both.pem":
        "cp /etc/mirrord/tls/cert.pem . && cat /etc/ssl/certs/ca-certificates.crt cert.pem > both.pem && CURL_CA_BUNDLE=both.pem curl -f https://mirror:8443/healthz",
    # The certificate was copied with the package.
    "install -m 644 cert.pem /etc/trainagent/mirror.pem": "install -m 644 /etc/mirrord/tls/cert.pem /etc/trainagent/mirror.pem",
    "apt install ./trainagent_*.deb": "cd /root/mirror/build/deb && apt install ./trainagent_*.deb ./trainer_*.deb",
    "runuser -u trainagent -- trainagent pull ...": "runuser -u trainagent -- trainagent pull models/base/gpt2/",
    # The folder comes with Prometheus' node exporter.
    "trainagent -q preflight --textfile /var/lib/prometheus/node-exporter/preflight.prom >/dev/null":
        "mkdir -p /var/lib/prometheus/node-exporter; trainagent -q preflight --textfile /var/lib/prometheus/node-exporter/preflight.prom >/dev/null",
    # The smallest shape, and one of the tables: without options it takes minutes.
    "trainer bench": "trainer bench --config tiny-gpt2 --device cpu --only copy --steps 1",
    "trainagent pull --peers": "runuser -u trainagent -- trainagent pull --peers models/base/gpt2/",
    "mirrorctl --plain": "mirrorctl --plain status",
    "mirrorctl --json": "mirrorctl --json status",
    "mirrorctl sync logs REPO": "mirrorctl sync logs archive",
    "mirrorctl sync logs": "mirrorctl sync logs archive",
    # TOKEN is what an earlier command printed, CURL_CA_BUNDLE is set as the table of clients says.
    """curl -H "Authorization: Bearer $TOKEN" -H 'Cache-Control: no-cache' https://mirror:8443/pypi/simple/ourlib/""":
        "export CURL_CA_BUNDLE=/etc/mirrord/tls/cert.pem TOKEN=$(mirrorctl token create --name refresher --scope 'sync:pypi/simple/*'); "
        """curl -f -H "Authorization: Bearer $TOKEN" -H 'Cache-Control: no-cache' https://mirror:8443/pypi/simple/ourlib/""",
    "mirrorctl cache ls REPO [PREFIX]": "mirrorctl cache ls debian pool/",
    "cache rm REPO/PREFIX": "mirrorctl cache rm debian/pool/",
    "cache pin REPO/PREFIX": "mirrorctl cache pin debian/pool/",
    "cache unpin": "mirrorctl cache unpin debian/pool/",
    "mirrorctl hf ls [REPO] [PREFIX]": "mirrorctl hf ls hf org/",
    "hf show ID": "mirrorctl hf show org/name",
    "hf show ID@main": "mirrorctl hf show org/name@main",
    "mirrorctl hf prefetch ID[@REV] --wait": "mirrorctl hf prefetch org/name@main --wait",
    "hf pin ID[@REV]": "mirrorctl hf pin org/name",
    "hf unpin ID": "mirrorctl hf unpin org/name",
    "mirrorctl hf rollback ID[@BRANCH] COMMIT": "mirrorctl hf rollback org/name@main $COMMIT",
    "hf rollback ID --release": "mirrorctl hf rollback org/name --release",
    "mirrorctl snapshot ls REPO [NAME]": "mirrorctl snapshot ls archive",
    "snapshot rollback REPO [NAME] VERSION": "mirrorctl snapshot rollback archive v1",
    "snapshot hold --off": "mirrorctl snapshot hold archive --off",
    "sync logs REPO": "mirrorctl sync logs archive",
    "sync run REPO --wait": "mirrorctl sync run archive --wait",
    "snapshot diff REPO vLIVE vHELD": "mirrorctl snapshot diff archive v1 v3",
    "sync approve REPO": "mirrorctl sync approve archive",
    # It runs without a daemon, as the user that owns the store.
    "mirrord --verify": "systemctl stop mirrord && runuser -u mirrord -- mirrord --verify; rc=$?; systemctl start mirrord; exit $rc",
}

NOT_RUN = {
    "make && sudo make install": "installs without packages: test_install.py",
    "make install PREFIX=/usr/local": "the same",
    "make install": "the same",
    "certbot certonly -d mirror.example": "needs a name in the public DNS; test_examples.py runs the hook",
    "for node in gpu01 gpu02; do scp build/deb/trainagent_*.deb /etc/mirrord/tls/cert.pem root@$node:/root/; done": "needs other machines",
    "trainagent run --preempt-url URL": "asks a cloud's metadata service: test_preempt.py has the three kinds",
    "git pull && make deb": "there is no newer commit; test_an_upgrade_keeps_all_that_was_made installs another version",
    "trainagent run job.conf": "runs a job: test_agent_faulty_mirror.py",
    "ln -s /usr/bin/trainagent /etc/slurm/prolog.d/50-trainagent-prolog": "needs Slurm: test_slurm_real.py",
    "sbatch --comment='mirror=hf/openai-community/gpt2@main,datasets/wiki/' train.sbatch": "needs Slurm: test_slurm_real.py",
    "hf download": "the Hub's own client: tests/clients",
}
if not HEAVY:
    NOT_RUN["make deb"] = "the build is packed instead; make test-heavy runs it"

# Blocks that are no commands, by their beginning, and what becomes of them.
CONFIGURATION = {
    "[Service]": "typed at `systemctl edit`",
    'repo "archive"': "/etc/mirrord/conf.d/archive.conf",
    'repo "debian"': "replaces the one that init wrote",
    'limit "anonymous"': "replaces the one that init wrote",
    "preflight": "/etc/trainagent/preflight.conf",
    "peers": "/etc/mirrord/conf.d/peers.conf",
    "trusted_proxies": "/etc/mirrord/conf.d/trusted_proxies.conf",
    'repo "hf"': "only tested: there is no proxy",
    "PrologFlags=Alloc,DeferBatch": "configures Slurm: test_slurm_real.py",
}

# Exit codes other than 0 that are right: the verdict of preflight on this machine, a run that is held, a mirror that is no cluster's.
CODES = {"trainagent preflight": (0, 1, 2), "trainagent -q preflight": (0, 1, 2), "sync run REPO --wait": (75,), "mirrorctl cluster drain": (69,)}

TOKEN = "mirrorctl token create --name ci --scope 'publish:models/*' --scope 'read:hf/*' --expires 90d > token"
UPLOAD = ('curl --cacert /etc/mirrord/tls/cert.pem -T model.safetensors -H "Authorization: Bearer $(cat token)" '
          "https://mirror:8443/models/me/gpt/model.safetensors")
EXPECTED = {
    "mirrorctl config test": "ok: ",
    "curl --cacert /etc/mirrord/tls/cert.pem https://mirror:8443/healthz": "ok",
    UPLOAD: '"version": *"v1"',
    "mirrorctl token ls": r"(?m)^ci\s.*publish:models/\*",
}


def spans(text):
    return [" ".join(m[1].split()) for m in re.finditer(r"`([^`]+)`", text)]


def mirrorctl_commands():
    """{"status", "cache ls", ...}, from its help."""
    output = subprocess.run([BUILD / "mirrorctl", "--help"], capture_output=True, text=True, check=True).stdout
    return {" ".join(re.match(r"[a-z ]+", line.strip())[0].split()) for line in re.findall(r"^  [a-z][^\n]*?  ", output, re.M)}


def steps():
    """The page in its order: ("command", text); ("mention", text), a bare `cache ls`; ("block", text), configuration."""
    page = PAGE.read_text()
    nouns = {c.split()[0] for c in mirrorctl_commands()}
    for part in re.split(r"((?:^    .*\n)+)", page, flags=re.M):
        if part.startswith("    "):
            lines = [re.sub(r"\s+# .*", "", line[4:]) for line in part.splitlines()]
            lines = [line for line in lines if line and not line.startswith("#")]
            if section(lines[0]) is not None:
                yield "block", "\n".join(lines)
            else:
                yield from (("command", line) for line in lines)
        else:
            for words in spans(part):
                first, *more = words.split()
                if more and first in PROGRAMS:
                    yield "command", words
                elif more and first in nouns and re.fullmatch(r"[a-z]+|--[a-z]+", more[0]):
                    plain = len(more) == 1 and words not in FILLED_IN and words not in NOT_RUN
                    yield ("mention" if plain else "command"), words


def section(line):
    found = [start for start in CONFIGURATION if line == start or line.startswith(start + " ") or line.startswith(start + "{")]
    return found[0] if found else None


def typed(words):
    """What is typed for a command of the page."""
    return FILLED_IN.get(words, words if words.split()[0] not in {c.split()[0] for c in mirrorctl_commands()} else f"mirrorctl {words}")


def test_each_command_of_the_page_is_run_or_excused():
    """This test boots no machine."""
    seen, blocks = set(), set()
    for kind, words in steps():
        if kind == "block":
            blocks.add(section(words.splitlines()[0]))
        elif kind == "mention":
            assert re.sub(" --.*", "", words) in mirrorctl_commands(), f"`{words}` is no command of mirrorctl's"
        else:
            seen.add(words)
            assert words in FILLED_IN or words in NOT_RUN or not re.search(r"\.\.\.|\[|(?<![$A-Z_\"'])\b[A-Z]{2,}\b(?!=)", words), \
                f"`{words}` leaves something to the reader: say in FILLED_IN what is typed, or in NOT_RUN why it is not"
    assert len(seen) > 60
    assert set(FILLED_IN) - seen == set() and set(NOT_RUN) - seen == set(), "no longer on the page"
    assert set(CONFIGURATION) - blocks == set(), "no longer on the page"


# --- packages -----------------------------------------------------------------------------------------------------------

def source(folder, commit=None):
    """The tree as it is, or as it was at a commit."""
    folder.mkdir()
    what = ["git", "archive", commit] if commit else ["sh", "-c", "git ls-files -z | tar --null -T - --ignore-failed-read -c"]
    with subprocess.Popen(what, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tree:
        subprocess.run(["tar", "-C", folder, "-x"], stdin=tree.stdout, check=True)
    return folder


def repack(packages, work):
    """The same packages as an older version. Its mirrord.conf is another one, and a conffile, as it was in the first packages."""
    work.mkdir()
    for file in packages:
        top = work / file.name.split("_")[0]
        subprocess.run(["dpkg-deb", "-R", file, top], check=True)
        control = top / "DEBIAN/control"
        control.write_text(re.sub(r"(?m)^Version: .*", "Version: 0.0.1~before", control.read_text()))
        if top.name == "mirrord":
            shipped = top / "etc/mirrord/mirrord.conf"
            shipped.parent.mkdir(parents=True, exist_ok=True)
            shipped.write_text((ROOT / "conf/mirrord.conf").read_text() + "# Of the version before.\n")
            listed = top / "DEBIAN/conffiles"
            listed.write_text("".join(f"{f}\n" for f in {*listed.read_text().split(), "/etc/mirrord/mirrord.conf"}))
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", top, work], check=True, capture_output=True, env={**os.environ, **UNCOMPRESSED})
        shutil.rmtree(top)
    return sorted(work.glob("*.deb"))


def version_before():
    """The last tag or, without one, an older commit."""
    for command in ("git describe --tags --abbrev=0 HEAD^", "git rev-parse --verify -q HEAD~40"):
        done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    pytest.skip("no version before is known: the clone is shallow")


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    if SLOW != 1:
        pytest.skip("a sanitizer build is not packed")
    return bare_root(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def packages(bare, packed, tmp_path_factory):
    """The packages of this version: those of the build, or those that `make deb` makes on a bare machine."""
    if not os.access("/usr/bin/dh", os.X_OK):
        pytest.skip("debhelper is not installed")
    if not HEAVY:
        return sorted(packed().glob("*.deb"))
    folder = tmp_path_factory.mktemp("packages")
    with Machine(bare, folder) as m:
        m.prepare("apt-get update -qq; apt-get install -qq --no-install-recommends git make")
        source(m.at("/root/mirror"))
        m.prepare("cd /root/mirror && make deb")
        for file in m.at("/root/mirror/build/deb").glob("*.deb"):
            shutil.copy(file, folder)
    return sorted(folder.glob("*.deb"))


@pytest.fixture(scope="module")
def packages_before(packages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("before")
    if not HEAVY:
        return repack(packages, folder / "old")
    tree = source(folder / "tree", version_before())
    for name in ("VERSION", "debian/changelog"):
        (tree / name).write_text(re.sub(r"[0-9]+\.[0-9]+\.[0-9]+", "0.0.1~before", (tree / name).read_text(), count=1))
    compiler = "ccache gcc" if shutil.which("ccache") else "gcc"
    done = subprocess.run(["make", f"-j{os.cpu_count()}", f"CC={compiler}", "CUDA_HOME=/none", "all"], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    pack(tree, folder / "old", CUDA_HOME="/none")
    return sorted((folder / "old").glob("*.deb"))


@pytest.fixture
def machine(bare, packages, tmp_path):
    """A booted machine. It has downloaded what the packages depend on, and has no network any more."""
    with Machine(bare, tmp_path) as m:
        put(m, packages)
        m.prepare("apt-get update -qq; apt-get install -qq --download-only /root/mirror/build/deb/*.deb; rm -f /etc/resolv.conf")
        m.boot()
        yield m


def put(machine, files):
    folder = machine.at("/root/mirror/build/deb")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in files:
        shutil.copy(file, folder)


# --- the hour -----------------------------------------------------------------------------------------------------------

class Newcomer:
    """Does what the page says, and what it leaves to its reader. The upstreams are fake servers on the machine's loopback."""

    def __init__(self, machine):
        self.m = machine
        with machine.network():
            self.tree, self.moved, self.hub, self.index, self.registry = TreeOrigin(), TreeOrigin(), Hub(), Index(), Registry()
            for tree in (self.tree, self.moved):
                tree.put("debian/pool/a.deb", b"a package")
            for n in range(20):
                self.tree.put(f"linux/{n}.txt", b"%d" % n)
            self.tree.put("wiki/a.txt", b"words")
            repo = self.hub.repo("org/name", files={"config.json": b"{}", "model.safetensors": b"w" * 5000})
            self.commit = repo.refs["main"]
            self.hub.repo("org/set", kind="datasets", files={"a.csv": b"1,2\n"})
            self.index.wheel("ourlib", "1.0")
            self.index.publish()
            for name in ("team/app", "team/base"):
                self.registry.image(name, "v1")
        self.steps = list(steps())
        self.block = {section(words.splitlines()[0]): words for kind, words in self.steps if kind == "block"}
        self.apt_list = None

    def close(self):
        for upstream in (self.tree, self.moved, self.hub, self.registry):
            if upstream is not None:
                upstream.close()
        self.index.down()

    def do(self, words):
        """Runs a command of the page."""
        assert ("command", words) in self.steps, f"`{words}` is not on the page"
        self.before(words)
        codes = next((codes for start, codes in CODES.items() if words.startswith(start)), (0,))
        output = self.run(typed(words), cwd="/root/mirror" if words.startswith("apt install ./build") else "/root", ok=codes)
        assert re.search(EXPECTED.get(words, ""), output), (words, output)
        self.after(words)

    def run(self, words, **more):
        return self.m.run(words, COMMIT=self.commit, HF_ENDPOINT=self.hub.url, **more)

    def conf(self, name, text):
        self.m.write(f"/etc/mirrord/conf.d/{name}", text + "\n")
        self.run("mirrorctl config test && mirrorctl config reload")

    def replace(self, what, text):
        """Replaces a section of the configuration that init wrote."""
        file = self.m.at("/etc/mirrord/mirrord.conf")
        new, n = re.subn(re.escape(what) + r" \{\n.*?^\}\n", lambda _: text + "\n", file.read_text(), flags=re.M | re.S)
        assert n == 1, (what, file.read_text())
        file.write_text(new)
        self.run("mirrorctl config test && mirrorctl config reload")

    def get(self, path):
        return self.run(f"curl -sSfL http://mirror:8080/{path}")

    def publish(self, path):
        self.run("test -e /root/mine || mirrorctl token create --name mine --scope 'publish:models/*' > /root/mine; "
                 f'echo {path} | curl -sSf -T - -H "Authorization: Bearer $(cat /root/mine)" http://localhost:8080/{path}')

    # What a person does before a command, or looks at after it.

    def before(self, words):
        m = self.m
        if words == "mirrorctl init --force":  # it reads apt's list
            self.apt_list = m.at("/etc/apt/sources.list").read_text()
            m.write("/etc/apt/sources.list", f"deb {self.tree.url}debian bookworm main\n")
        elif words == "mirrord -c FILE":
            m.write("/root/own/mirrord.conf", 'state_dir = "/root/own/state"\nlisten "127.0.0.1:8123" { }\nrepo "models" { protocol = "hosted" }\n')
        elif words == "systemctl edit mirrord":
            m.write("/root/typed", self.block["[Service]"] + "\n")
        elif words.startswith("curl") and "-T model.safetensors" in words:
            m.write("/root/model.safetensors", "w" * 100000)
        elif words == "systemctl enable --now trainagent.timer":
            self.publish("models/base/gpt2/config.json")
        elif words.startswith("SLURM_JOB_ID=1 SLURM_JOB_COMMENT"):
            self.conf("datasets.conf", f'repo "datasets" {{ protocol = "generic" origin = "{self.tree.url}wiki/" sync {{ }} }}')
            self.run("mirrorctl sync run datasets --wait")
        elif words.startswith("mirrorctl cache refresh pypi"):
            self.recipe("pypi", "https://pypi.example/", self.index.url + "/")
            self.recipe("oci", "https://registry-1.docker.io", self.registry.url)
            self.get("pypi/simple/ourlib/")
        elif words.startswith("mirrorctl cache ls REPO"):
            self.get("debian/pool/a.deb")
        elif words.startswith("mirrorctl hf ls"):
            self.get("hf/org/name/resolve/main/config.json")
        elif words.startswith("mirrorctl hf export"):
            m.at("/media/disk").mkdir(parents=True)
        elif words.startswith("mirrorctl snapshot ls"):  # so that there are two
            self.tree.put("linux/new.txt", b"new")
            self.run("mirrorctl sync run archive --wait")
        elif words == "sync run REPO --wait":  # so that the run is held
            for n in range(18):
                self.tree.rm(f"linux/{n}.txt")

    def recipe(self, name, address, ours):
        text = (ROOT / f"conf/examples/{name}.conf").read_text()
        assert address in text
        self.conf(f"{name}.conf", text.replace(address, ours))

    def after(self, words):
        if words == "mirrorctl init --force":  # it found the archive in apt's list and the Hub in HF_ENDPOINT
            written = self.m.at("/etc/mirrord/mirrord.conf").read_text()
            assert self.tree.url + "debian/" in written and self.hub.url in written
            self.m.write("/etc/apt/sources.list", self.apt_list)
            # The fake Hub speaks plain HTTP; its CDN must be named, unlike the real one.
            self.m.write("/etc/mirrord/mirrord.conf", written.replace(f'origin = "{self.hub.url}"', f'origin = "{self.hub.url}" hosts = {{"127.0.0.2"}}'))
        elif words == "systemctl enable --now mirrord":
            assert self.get("debian/pool/a.deb") == "a package"
        elif words == "systemctl enable --now trainagent.timer":
            self.run("systemctl start trainagent.service")
            assert "1 file " in self.run("trainagent status")
        elif words == "systemctl edit mirrord":
            self.run("systemctl restart mirrord; systemctl show -p ReadWritePaths mirrord | grep /srv/mirror")

    def configure(self, which, words):
        if which == 'repo "archive"':
            self.conf("archive.conf", words.replace("rsync://archive.example/", self.tree.url))
        elif which == 'repo "debian"':
            asked = len(self.moved.requests)
            self.replace(which, words.replace("https://new.example/", self.moved.url).replace("http://old.example/", self.tree.url))
            assert self.get("debian/pool/a.deb") == "a package" and len(self.moved.requests) == asked, "nothing is fetched again"
        elif which == 'limit "anonymous"':
            self.replace(which, words)
        elif which == "preflight":
            self.m.write("/etc/trainagent/preflight.conf", words + "\n")
        elif which in ("peers", "trusted_proxies"):
            self.conf(f"{which}.conf", words)
        elif which == 'repo "hf"':
            self.m.write("/root/proxy.conf", 'state_dir = "/root/own/state"\nlisten "127.0.0.1:8123" { }\n'
                         + words.replace("...", f'protocol = "hf" origin = "{self.hub.url}"') + "\n")
            self.run("mirrord -t -c /root/proxy.conf")


@pytest.fixture
def newcomer(machine):
    n = Newcomer(machine)
    yield n
    n.close()


def all_files(machine):
    """The files of the machine that no package owns and that the system does not write by itself."""
    owned = {re.sub(r"^/(lib|bin|sbin)/", r"/usr/\1/", f) for names in machine.at("/var/lib/dpkg/info").glob("*.list") for f in names.read_text().splitlines()}
    theirs = re.compile(r"/var/(lib/(dpkg|apt|systemd)|cache/(apt|debconf|ldconfig)|log/(apt|dpkg|alternatives|journal|faillog|lastlog|btmp|wtmp)|tmp)\b"
                        r"|/etc/(alternatives\b|ld\.so\.cache|\.pwd|(passwd|group|g?shadow|subuid|subgid)-?$)|\S*logrotate")
    found = machine.run("find /etc /var /usr /srv /opt /media /home /run/mirrord* /run/trainagent* -not -lname '/etc/alternatives/*' 2>/dev/null; true").splitlines()
    return {f for f in found if f not in owned and not theirs.match(f)}


def what_is_left(newcomer, pristine):
    """After a purge: the files that were not there before, and our users."""
    assert newcomer.run("systemctl list-unit-files | grep -E 'mirrord|trainagent'", ok=(1,)) == ""
    return all_files(newcomer.m) - pristine, newcomer.run("getent passwd mirrord trainagent | cut -d: -f1; true").split()


def test_the_newcomers_hour(machine, newcomer):
    pristine = all_files(machine)
    for kind, words in steps():
        if kind == "block":
            newcomer.configure(section(words.splitlines()[0]), words)
        elif kind == "command" and words not in NOT_RUN and words != "make deb":  # the fixture has run it
            newcomer.do(words)
    left, users = what_is_left(newcomer, pristine)
    data = re.compile(r"/(var/lib/mirrord|var/cache/trainagent|srv/mirror|media/disk)(/|$)")
    assert {f for f in left if not data.match(f)} == {"/var/lib/prometheus", "/var/lib/prometheus/node-exporter", "/var/lib/prometheus/node-exporter/preflight.prom"}
    assert any("/var/lib/mirrord/blobs/" in f for f in left) and users == ["mirrord", "trainagent"], "they own what is left"


def test_an_upgrade_keeps_all_that_was_made(machine, newcomer, packages, packages_before):
    """The page's first commands install the version before. The upgrade asks nothing, and needs no restart by hand."""
    put(machine, packages_before)
    pristine = all_files(machine)
    for words in ("apt install ./build/deb/mirrord_*.deb", "mirrorctl init --force", "mirrorctl config test", "systemctl enable --now mirrord",
                  "mirrorctl tls init --name mirror > /etc/mirrord/tls.new && mv /etc/mirrord/tls.new /etc/mirrord/conf.d/tls.conf", "mirrorctl config test && systemctl reload mirrord", TOKEN, UPLOAD):
        newcomer.do(words)
    newcomer.configure('repo "archive"', newcomer.block['repo "archive"'])
    newcomer.run("mirrorctl sync run archive --wait")
    ours = {f: machine.at(f).read_bytes() for f in ("/etc/mirrord/mirrord.conf", "/etc/mirrord/conf.d/tls.conf", "/etc/mirrord/conf.d/archive.conf",
                                                    "/etc/mirrord/tls/key.pem", "/etc/mirrord/tls/cert.pem")}
    paths = ("debian/pool/a.deb", "models/me/gpt/model.safetensors", "archive/7.txt", "archive/@v1/7.txt")
    served = [newcomer.get(path) for path in paths]
    assert "0.0.1~before" in newcomer.run("dpkg-query -W mirrord")
    newcomer.tree.close()
    newcomer.tree = None

    put(machine, packages)
    newcomer.do("apt install ./build/deb/mirrord_*.deb")
    assert f"mirrord {(ROOT / 'VERSION').read_text().strip()}, serving" in newcomer.run("mirrorctl status", ok=(0, 1))
    assert {f: machine.at(f).read_bytes() for f in ours} == ours
    assert [newcomer.get(path) for path in paths] == served
    assert re.search(r"^ci\s", newcomer.run("mirrorctl token ls"), re.M)
    newcomer.run("echo more >> model.safetensors")
    assert re.search('"version": *"v2"', newcomer.run(UPLOAD)), "by the token of before"
    newcomer.run("mirrorctl config test && mirrorctl verify --deep")
    newcomer.do("apt purge mirrord")
    left, users = what_is_left(newcomer, pristine)
    assert {f for f in left if not re.match("/var/lib/mirrord(/|$)", f)} == set() and users == ["mirrord"]
