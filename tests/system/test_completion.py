"""Completion in real shells, from the installed files: what a person is offered is what the programs have.

bash's function is called with a command line; fish tells by itself what it would offer; zsh is typed to on a terminal.
"""
import os
import pty
import re
import select
import shlex
import subprocess
import time

import pytest

from harness.mirrord import BUILD, ROOT, SLOW

VERBS = re.findall(r'^VERB\("([^"]*)", "([^"]*)", "[^"]*", \d+, \d+, "([^"]*)"', (ROOT / "server/ctl/verbs.def").read_text(), re.M)
FOLDER = ROOT / "conf/completion"
PATH = dict(os.environ, PATH=f"{BUILD}:{os.environ['PATH']}", TERM="xterm", LC_ALL="C.UTF-8")


class Bash:
    def __init__(self, program, tmp_path):
        self.program = program

    def offers(self, line):
        words = line.split(" ")
        script = (f"source {FOLDER}/{words[0]}.bash; COMP_WORDS=({' '.join(shlex.quote(w) for w in words)}); COMP_CWORD={len(words) - 1}; "
                  f'_{words[0]}; printf "%s\\n" "${{COMPREPLY[@]}}"')
        return set(subprocess.run([self.program, "-c", script], capture_output=True, text=True, check=True, timeout=60 * SLOW,
                                  env=PATH).stdout.split())

    def close(self):
        pass


class Fish:
    def __init__(self, program, tmp_path):
        self.program, self.home = program, tmp_path

    def offers(self, line):
        done = subprocess.run([self.program, "--no-config", "-c", f"source {FOLDER}/{line.split()[0]}.fish; complete -C {shlex.quote(line)}"],
                              capture_output=True, text=True, check=True, timeout=60 * SLOW, env=dict(PATH, HOME=str(self.home)))
        assert not done.stderr, done.stderr
        return {row.split("\t")[0] for row in done.stdout.splitlines()}

    def close(self):
        pass


class Zsh:
    """An interactive one: a list of what may follow is asked for, then a line that shows that it has been written."""

    def __init__(self, program, tmp_path):
        functions = tmp_path / "functions"
        functions.mkdir()
        for file in FOLDER.glob("*.zsh"):
            (functions / f"_{file.stem}").symlink_to(file)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(tmp_path)
            os.execve(program, [program, "-f", "-i"], dict(PATH, HOME=str(tmp_path), COLUMNS="200", LINES="1000"))
        self.seen = b""
        os.write(self.fd, f"stty rows 1000 cols 200; PS1='rea''dy> '; unsetopt prompt_cr prompt_sp; unset zle_bracketed_paste; "
                          f"fpath=({functions} ${{(M)fpath:#*Completion(|/Base)}}); autoload -U compinit && compinit -C -D; LISTMAX=10000; "
                          "bindkey -e\r".encode())
        self.until("ready> ")  # from here on it reads keys itself

    def until(self, mark):
        end = time.monotonic() + 60 * SLOW
        while mark.encode() not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.fd], [], [], 1)[0]:
                self.seen += os.read(self.fd, 65536)
        before, _, self.seen = self.seen.partition(mark.encode())
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", before.decode())

    def offers(self, line):
        os.write(self.fd, f"{line}\x04\x15print do''ne\r".encode())
        shown = self.until("done\r\n").split("print do")[0]
        self.until("ready> ")
        listed = shown.replace("\r", "\n").split("\n")
        return {word for row in listed for word in re.findall(r"(?<!\S)(-*[A-Za-z][\w./-]*)(?=\s)", re.split(r"\s+-- ", row + " ")[0] + " ")
                if row.strip() != line.strip()}

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


@pytest.fixture(params=["bash", "fish", "zsh"])
def shell(request, client, tmp_path):
    opened = {"bash": Bash, "fish": Fish, "zsh": Zsh}[request.param](client(request.param), tmp_path)
    yield opened
    opened.close()


def test_mirrorctl_offers_every_noun_verb_and_option(shell):
    assert shell.offers("mirrorctl ") >= {noun for noun, _, _ in VERBS}
    for noun in {noun for noun, word, _ in VERBS if word}:
        assert shell.offers(f"mirrorctl {noun} ") >= {word for n, word, _ in VERBS if n == noun}, noun
    for noun, word, options in VERBS:
        has = set(re.findall(r"--[a-z-]+", options))
        if has:
            assert shell.offers(f"mirrorctl {noun} {word} --".replace("  ", " ")) >= has, (noun, word)
    assert shell.offers("mirrorctl cache ls --") >= {"--json", "--plain", "--socket", "--limit"}


@pytest.mark.parametrize("line,has,lacks", [
    ("trainagent p", {"pull", "publish"}, {"run"}), ("trainagent pull --t", {"--to", "--token-file", "--tries"}, {"--shelf", "--textfile"}),
    ("trainagent --tries 3 preflight --te", {"--textfile"}, {"--to"}), ("trainagent --t", {"--token-file", "--tries"}, {"--to"}),
    ("trainer t", {"train", "tokenize"}, {"eval"}), ("trainer eval --b", {"--batch", "--batches"}, {"--beta1"}),
    ("trainer train --beta", {"--beta1", "--beta2"}, {"--batch"}), ("mirrord --p", {"--print"}, {"--test"}),
    ("mirrord --", {"--config", "--test", "--verify", "--deep"}, set())])
def test_the_others_offer_what_their_help_has(shell, line, has, lacks):
    given = shell.offers(line)
    assert has <= given and not lacks & given, given


def test_names_come_from_the_daemon_that_the_line_means(shell, mirrord):
    m = mirrord('repo "wheels-here" { protocol = "hosted" }')
    assert "wheels-here" in shell.offers(f"mirrorctl --socket {m.socket} repo show ")
    assert {"show", "ls"} <= shell.offers(f"mirrorctl --socket {m.socket} repo ")
