"""What `make install` puts into a system: units that systemd accepts, manuals that render, examples that pass."""
import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

from harness.mirrord import BUILD, ROOT, SLOW


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    if SLOW != 1:
        pytest.skip("a sanitizer build is not installed")
    root = tmp_path_factory.mktemp("root")
    subprocess.run(["make", "-s", "-C", ROOT, "install", f"DESTDIR={root}", "PREFIX=/usr"], check=True, capture_output=True,
                   timeout=300)
    return root


def test_units(installed, client, tmp_path):
    """Verified with the paths of the programs as installed: systemd looks whether they are there."""
    analyze = client("systemd-analyze")
    units = []
    for unit in (installed / "usr/lib/systemd/system").iterdir():
        (tmp_path / unit.name).write_text(re.sub(r"/usr/s?bin/", lambda m: str(installed) + m[0], unit.read_text()))
        units.append(tmp_path / unit.name)
        for program in re.findall(r"^Exec\w+=(/\S+)", unit.read_text(), re.M):  # nothing that a small system lacks
            assert program == "/bin/sh" or (installed / program[1:]).exists()
    assert {u.name for u in units} == {"mirrord.service", "trainagent.service", "trainagent.timer"}
    done = subprocess.run([analyze, "verify", "--man=no", *units], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    for service in units:
        if service.suffix == ".service":
            done = subprocess.run([analyze, "security", "--offline=true", "--threshold=15", "--no-pager", service],
                                  capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout
            assert unexplained(analyze, service) == []


def unexplained(analyze, service):
    """Settings that an offline analysis counts against the unit, and that no comment of it names."""
    told = subprocess.run([analyze, "security", "--offline=true", "--json=short", "--no-pager", service], capture_output=True, text=True, check=True)
    comments = "\n".join(line for line in service.read_text().splitlines() if line.startswith("#"))
    names = {re.match(r"\w+=?", check["name"])[0] for check in json.loads(told.stdout) if check["exposure"]}
    assert names, "nothing was counted: is that still how it tells?"
    return sorted(name for name in names if name not in comments)


def test_manuals(installed, client):
    man = client("man")
    pages = list((installed / "usr/share/man").rglob("*.[158]"))
    assert len(pages) == len(list((ROOT / "docs/man").iterdir()))
    for page in pages:
        done = subprocess.run([man, "-l", "--warnings=w", page], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and not done.stderr and "NAME" in done.stdout, (page, done.stderr)


def test_examples(installed, tmp_path):
    """Each recipe, in a configuration of its own; what -T prints of it passes too, and prints the same again."""
    recipes = [f for f in (installed / "usr/share/doc/mirror/examples").glob("*.conf") if f.name not in ("job.conf", "preflight.conf", "trainagent.conf")]
    for recipe in [*recipes, installed / "etc/mirrord/mirrord.conf"]:
        conf = tmp_path / recipe.name
        conf.write_text(recipe.read_text() if re.search("^listen", recipe.read_text(), re.M) else
                        f'state_dir = "{tmp_path}/state"\nlisten "127.0.0.1:0" {{ }}\ninclude("{recipe}")\n')
        run = lambda flag, path: subprocess.run([BUILD / "mirrord", flag, "-c", path], capture_output=True, text=True,  # noqa: E731
                                                check=False)
        assert run("-t", conf).returncode == 0, run("-t", conf).stderr
        printed = pathlib.Path(tmp_path, "printed.conf")
        printed.write_text(run("-T", conf).stdout)
        assert run("-t", printed).returncode == 0, run("-t", printed).stderr
        assert run("-T", printed).stdout == printed.read_text()


def test_comments_of_the_configuration_are_taken(installed, tmp_path):
    """Each section that stands there as a comment, copied into conf.d as it is, once `mirrorctl tls init` has made the files."""
    shipped = (installed / "etc/mirrord/mirrord.conf").read_text()
    sections = re.findall(r"^# (?:storage|listen|repo|limit|peers)\b[^\n]*(?:\{\n(?:#  [^\n]*\n)+# \}|\})$", shipped, re.M)
    assert len(sections) >= 6 and any("tls_key" in s for s in sections), sections
    (tmp_path / "conf.d").mkdir()
    conf = tmp_path / "mirrord.conf"
    conf.write_text(shipped.replace("/var/l", f"{tmp_path}/l"))
    subprocess.run([BUILD / "mirrorctl", "-c", conf, "tls", "init"], check=True, capture_output=True, timeout=60)
    for section in sections:
        (tmp_path / "conf.d/x.conf").write_text(re.sub("^# ?", "", section, flags=re.M).replace("/etc/mirrord/", f"{tmp_path}/") + "\n")
        done = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, (section, done.stderr)


def test_links_for_slurm(installed):
    """Each leads to the program, wherever the root is, and is its verb."""
    for name in ("prolog", "taskprolog", "epilog"):
        link = installed / f"usr/lib/trainagent/slurm-{name}"
        assert link.resolve() == (installed / "usr/bin/trainagent").resolve() and os.access(link, os.R_OK | os.X_OK)
        done = subprocess.run([link, "--no-such-option"], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 64 and "not an option" in done.stderr


def test_logs_are_rotated(installed, client, tmp_path):
    """logrotate takes the file, with a log where ours lies and a user that there is."""
    rules = (installed / "etc/logrotate.d/mirrord").read_text()
    assert "USR1" in rules and "/var/log/mirrord/" in rules
    (tmp_path / "access.log").write_text("a line\n")
    conf = tmp_path / "rotate"
    conf.write_text(rules.replace("/var/log/mirrord", str(tmp_path)).replace("create 0640 mirrord mirrord", "create 0640"))
    conf.chmod(0o644)
    subprocess.run([client("logrotate"), "--debug", "--state", tmp_path / "state", conf], check=True, capture_output=True, timeout=60)


def test_completions(installed, client):
    """Where each shell looks, and without a mistake in them; test_completion.py shows what they offer."""
    programs = {"mirrord", "mirrorctl", "trainagent", "trainer"}
    share = installed / "usr/share"
    for shell, folder, name in (("bash", "bash-completion/completions", "{}"), ("fish", "fish/vendor_completions.d", "{}.fish"),
                                ("zsh", "zsh/vendor-completions", "_{}")):
        assert {f.name for f in (share / folder).iterdir()} == {name.format(p) for p in programs}
        for file in (share / folder).iterdir():
            subprocess.run([client(shell), "-n", file], check=True, timeout=60)


def heed_signals():
    """A shell cannot trap what it began ignoring, as below nohup or behind a `&`."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("end", ["exit 0", "exit 100", "kill -INT $PPID", "kill -TERM $PPID", "kill -HUP $PPID"])
def test_deps_leaves_the_machine_able_to_start_services(tmp_path, end):
    """Nothing is installed: all programs that would do something are ours. However it ends, the policy is gone."""
    policy = tmp_path / "policy-rc.d"
    for name, text in {"id": "echo 0", "dpkg-query": "exit 1", "systemctl": "", "env": 'shift 2; exec "$@"', "apt-get": f"""
            test "$1" = install || exit 0
            test -x {policy} && touch {tmp_path}/held
            {end}"""}.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    done = subprocess.run(["sh", ROOT / "tests/deps.sh", "build"], capture_output=True, text=True, check=False, timeout=60,
                          preexec_fn=heed_signals,
                          env={**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "POLICY_RC_D": str(policy)})
    assert (tmp_path / "held").exists() and not policy.exists()
    assert (done.returncode == 0) == (end == "exit 0"), done.stderr


@pytest.mark.parametrize("network, conflicting", [("up", "slurmd"), ("down", "slurmd"), ("up", "none")])
def test_deps_goes_on_without_optional_packages(tmp_path, network, conflicting):
    """A package that conflicts is left out, one whose program is there already is not asked for, and without a network all are missing.
    Where none conflicts, apt-get is asked once."""
    given, asked = tmp_path / "given", tmp_path / "asked"
    for name, text in {"id": "echo 0", "dpkg-query": "exit 1", "env": 'shift 2; exec "$@"', "podman": "", "apt-get": f"""
            case $* in *-s*) echo >>{asked} ;; esac
            case $* in
            *-s*{conflicting}*) exit 100 ;;
            update* | *-s*) exit 0 ;;
            esac
            echo "$@" >{given}
            test {network} = up""", "systemctl": f"""
            case $* in
            *list-unit-files*) echo old.service enabled enabled; test ! -e {given} || echo new.service enabled enabled ;;
            *) echo "$@" >{tmp_path}/disabled ;;
            esac"""}.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    done = subprocess.run(["sh", ROOT / "tests/deps.sh", "clients"], capture_output=True, text=True, check=False, timeout=60,
                          env={**os.environ, "PATH": f"{tmp_path}/bin:/usr/bin:/bin", "POLICY_RC_D": str(tmp_path / "policy")})
    assert done.returncode == 0, done.stderr
    words = given.read_text().split()
    assert {"--no-remove", "slurmctld", "slurm-client", "munge"} <= {*words} and not {conflicting, "podman"} & {*words}
    left_out = done.stderr.partition("could not be installed; their tests will be skipped:")[2].split()
    assert (len(asked.read_text().split("\n")) == 2) == (conflicting == "none")
    assert left_out[:1] == [conflicting][:conflicting != "none"] and ("munge" in left_out) == (network == "down") and "podman" not in left_out, done.stderr
    assert (tmp_path / "disabled").read_text().split() == ["-q", "disable", "new.service"]
