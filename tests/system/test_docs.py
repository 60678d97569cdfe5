"""What the pages say is what the programs do: options, verbs, settings, metrics, recipes, links. In both directions."""
import json
import os
import re
import subprocess

import pytest

from harness.mirrord import BUILD, ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/protocols").glob("*.md"))]
MANUALS = {m.name: m.read_text() for m in sorted((ROOT / "docs/man").iterdir())}
VERBS = re.findall(r'^VERB\("([^"]*)", "([^"]*)", "[^"]*", \d+, \d+, "([^"]*)"', (ROOT / "server/ctl/verbs.def").read_text(), re.M)
OF_TRAINAGENT = ("pull", "run", "launch", "rendezvous", "preflight", "publish", "status", "gc", "prolog", "taskprolog", "epilog")
OF_TRAINER = ("train", "eval", "sample", "tokenize", "bench", "info")


def said(program, *args):
    done = subprocess.run([BUILD / program, *args], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, (program, args, done)
    return done.stdout


def options(text):
    """Long options, in help or in prose."""
    return set(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]+)", text))


def options_of_manual(name):
    """In mdoc an option is `Fl -long`, in man `\\-\\-long`."""
    text = MANUALS[name]
    return set(re.findall(r"\bFl (?:\w , )?-([a-z][a-z0-9-]+)", text)) | options(text.replace("\\-", "-"))


# --- programs and their manuals ---

@pytest.mark.parametrize("program,manual", [("mirrord", "mirrord.8"), ("trainagent", "trainagent.1")])
def test_a_manual_has_the_options_that_help_has(program, manual):
    has = options(said(program, "--help"))
    for verb in OF_TRAINAGENT if program == "trainagent" else ():
        has |= options(said(program, verb, "--help"))
    assert has - {"help"} == options_of_manual(manual) - {"help"}


def synopses():
    """Of trainagent(1): the options of each verb, of two verbs in one paragraph those of both."""
    found = {}
    for part in re.split(r"^\.br$", MANUALS["trainagent.1"].split(".SH SYNOPSIS")[1].split(".SH")[0], flags=re.M):
        words = set(re.findall(r"^\.B (?:trainagent )?([a-z]+)$", part, re.M)) - {"trainagent"}
        for verb in words:
            found[verb] = set(re.findall(r"--([a-z][a-z0-9-]+)", part.replace("\\-", "-")))
    return found


def test_the_help_of_each_verb_of_trainagent_is_its_own():
    told = synopses()
    examples = MANUALS["trainagent.1"].split(".SH EXAMPLES")[1].split(".SH")[0].replace("\\-", "-")
    assert set(told) == set(OF_TRAINAGENT)
    for verb in OF_TRAINAGENT:
        text = said("trainagent", verb, "--help")
        assert text == said("trainagent", "help", verb) == said("trainagent", "--help", verb)
        assert re.match(rf"usage: trainagent {verb} \[options\].*\n\n{verb} - ", text), text
        own = options(text.split("\nExample:")[0])
        assert own == (told[verb] if verb != "taskprolog" else set()) and bool(own) == ("\nOptions:\n" in text), (verb, told[verb] ^ own)
        [example] = re.findall(r"\nExample:\n\n  (.*)\n", text)
        assert example in examples.splitlines(), example
        assert example.split()[1] == verb and options(example.split(" -- ")[0]) <= own, example
    assert "no such verb; did you mean pull?" in subprocess.run([BUILD / "trainagent", "pul", "--help"], capture_output=True, text=True, check=False).stderr


def test_the_manual_of_mirrorctl_has_every_verb_with_its_options():
    text = MANUALS["mirrorctl.1"]
    paragraphs = re.findall(r"^\.It Ic (.*?)(?=^\.It |^\.El)", text, re.M | re.S)
    for noun, word, has in VERBS:
        title = f"{noun} {word}".strip()
        mine = [p for p in paragraphs if re.match(rf"{title}(?=\s|$)", p)]
        assert mine, f"{title} is not in mirrorctl(1)"
        told = set().union(*(set(re.findall(r"\bFl -([a-z][a-z-]+)", p)) for p in mine))
        assert told - {"json"} == options(has), title
    assert options(said("mirrorctl", "--help")) - {"help"} <= options_of_manual("mirrorctl.1")


def test_the_manual_of_mirrorctl_has_every_kind_of_trouble_and_exit_code():
    text = MANUALS["mirrorctl.1"]
    kinds = re.findall(r'\.kind = "(\w+)"', (ROOT / "server/admin/trouble.c").read_text())
    told = re.search(r"^\.Li kind\n\((.*?)\),$", text, re.M | re.S)[1]
    assert set(re.split(r",\s+", told)) == set(kinds)
    codes = {int(c) for c in re.findall(r"^ERROR\(\w+, -\d+, (\d+),", (ROOT / "common/base/errors.def").read_text(), re.M)}
    assert codes | {0, 1} == {int(c) for c in re.findall(r"^\.It (\d+)$", text.split(".Sh EXIT STATUS")[1].split(".Sh ")[0], re.M)}


def test_the_manual_of_trainer_names_no_option_that_no_verb_has():
    has = set().union(*(options(said("trainer", verb, "--help")) for verb in OF_TRAINER))
    assert options_of_manual("trainer.1") - {"help"} <= has


def test_the_manual_of_the_configuration_has_every_section_and_protocol():
    text = MANUALS["mirrord.conf.5"]
    for section in re.findall(r'^SECTION\(\w+, "(\w+)"', (ROOT / "server/conf/settings.def").read_text(), re.M):
        assert re.search(rf"^\.It Ic {section}\b", text, re.M), section
    for protocol in re.findall(r"^REPO\((\w+)\)", (ROOT / "server/repo/repos.def").read_text(), re.M):
        assert re.search(rf"\b{protocol}\b", text), protocol


# --- what the programs say of themselves ---

@pytest.mark.parametrize("program,words,says", [
    ("mirrord", ["--verfy"], "did you mean --verify?"), ("mirrord", ["-x"], "unknown option -x"),
    ("mirrord", ["--deep", "-c", "/nonexistent"], "is only for --verify"), ("mirrord", ["-c"], "needs a value"),
    ("mirrord", ["--json", "-c", "/nonexistent"], "is only for"), ("mirrord", ["nonsense"], "unexpected argument"),
    ("mirrorctl", ["--jsno", "status"], "did you mean --json?"), ("mirrorctl", ["status", "-xq"], "unknown option -x"),
    ("mirrorctl", ["cache"], "cache needs a verb: ls, stats, pin"), ("mirrorctl", ["cache", "lss"], 'did you mean "cache ls"?'),
    ("trainagent", ["pul"], "did you mean pull?"), ("trainagent", ["--mirorr=x"], "did you mean --mirror?"),
    ("trainer", ["trian"], "did you mean train?"), ("trainer", ["train", "--stpes", "1"], "did you mean --steps?"),
    ("trainer", ["info", "-x"], "two dashes")])
def test_a_slip_is_told_in_a_line(program, words, says):
    done = subprocess.run([BUILD / program, *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 64 and says in done.stderr and done.stdout == "", done
    assert done.stderr.count("\n") == 1 and done.stderr.startswith(program), done.stderr


def test_help_is_found_by_all_its_names():
    for program in ("mirrorctl", "trainagent", "trainer"):
        assert said(program, "help") == said(program, "--help")
    assert said("mirrorctl", "help", "cache", "ls") == said("mirrorctl", "cache", "ls", "--help")
    assert said("mirrorctl", "help", "cache") == said("mirrorctl", "cache", "--help")
    assert said("trainer", "help", "info") == said("trainer", "info", "-h")


def test_help_of_mirrorctl_stands_in_columns():
    """A verb's words end before the column where what it does begins, in all lines; and each option has its value."""
    rows = re.findall(r"^  ([a-z]+ .*?)  +(\S.*)$", said("mirrorctl", "help").split("\n\n")[1], re.M)
    lines = said("mirrorctl", "help").split("\n\n")[1].splitlines()
    assert len(rows) == len(lines) == len(VERBS)
    assert len({line.index("  " + does) for line, (_, does) in zip(lines, rows)}) == 1
    for noun, word, has in VERBS:
        text = said("mirrorctl", *f"{noun} {word}".split(), "--help")
        for option, value in re.findall(r"(--[a-z-]+)((?: [A-Z.:|-]+[A-Za-z.|:-]*)?)", has):
            assert re.search(rf"^  {re.escape(option + value)}  +\S", text, re.M), (noun, word, option, text)


# --- pages ---

def test_generated_tables_are_new():
    for which, page in (("settings", "configuration.md"), ("metrics", "metrics.md")):
        assert said("mirrord", "--print-docs", which) == (ROOT / "docs" / page).read_text(), f"make docs: {page}"
    assert said("trainagent", "preflight", "--list") == (ROOT / "docs/preflight.md").read_text(), "make docs: preflight.md"


def commands(program):
    """(page, words) of each place where a page gives this program something to do, in code."""
    for page in PAGES:
        for code in re.findall(r"`([^`\n]+)`|^(?:    |\t)(.+)$|^([A-Za-z][^|\n]*)$", page.read_text(), re.M):
            line = re.sub(r"\B-u \w+ -- ", "", code[0] or code[1])  # `runuser -u trainagent -- trainagent pull`: the first one is a user
            for one in re.finditer(rf"(?:^|[\s`])(?:build/)?{program}((?: +[^\s#|&;]+)+)", line):
                yield page.relative_to(ROOT), one[1].split()


def test_pages_name_verbs_and_options_that_mirrorctl_has():
    seen = 0
    titles = {(noun, word) for noun, word, _ in VERBS}
    for page, words in commands("mirrorctl"):
        given = [w for w in words if not w.startswith("-")]
        if "-c" in words[:1]:
            given = given[1:]
        if not given or not re.fullmatch(r"[a-z]+", given[0]):
            continue  # `mirrorctl --json` and the like
        noun, word = given[0], given[1] if len(given) > 1 else ""
        if not word and noun in {n for n, _ in titles}:
            continue  # `mirrorctl hf`: all of its verbs
        verb = (noun, "") if (noun, "") in titles else (noun, word)
        assert verb in titles, (page, words)
        has = next(o for n, w, o in VERBS if (n, w) == verb)
        assert options(" ".join(words)) <= options(has) | {"json", "socket", "help"}, (page, words)
        seen += 1
    assert seen > 20


def test_pages_name_verbs_and_options_that_the_others_have():
    agent = said("trainagent", "--help")
    for page, words in commands("trainagent"):
        verb = next((w for w in words if not w.startswith("-")), None)
        if verb and re.fullmatch(r"[a-z]+", verb):
            assert re.search(rf"^  {verb} ", agent, re.M), (page, words)
            own = words[:words.index("--")] if "--" in words else words  # what follows is the command's
            assert options(" ".join(own)) <= options(agent) | options(said("trainagent", verb, "--help")), (page, words)
    for page, words in commands("trainer"):
        if words[0] in OF_TRAINER:
            assert options(" ".join(words)) <= options(said("trainer", words[0], "--help")), (page, words)
        else:
            assert words[0].startswith("-") or words[0] in ("VERB",), (page, words)


def test_pages_name_metrics_that_there_are():
    names = set(re.findall(r"`(mirrord_\w+)`", (ROOT / "docs/metrics.md").read_text()))
    for page in [*PAGES, *(ROOT / "conf/examples").rglob("*")]:
        if page.is_file():
            for name in re.findall(r"\bmirrord_[a-z_]+\b", page.read_text()):
                base = re.sub(r"_(bucket|sum|count)$", "", name)
                assert name in names or base in names or name == "mirrord_rocksdb_", (page, name)


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), (page, target)
        for path in re.findall(r"\b((?:docs|conf|tests|server|systemd|demo)/[\w./-]+\.\w+)", page.read_text()):
            assert (ROOT / path).exists(), (page, path)


def test_no_page_overwrites_a_list_of_sources():
    """A line that is pasted must leave the machine's own sources as they are."""
    for page in PAGES:
        assert not re.search(r"(>|tee) */etc/apt/sources\.list(?!\.d)", page.read_text()), page


def recipes():
    """Every block of a page that is a configuration: it begins with a setting or a section of one."""
    for page in PAGES:
        for n, block in enumerate(re.findall(r"^```\n(.*?)^```", page.read_text(), re.M | re.S)):
            if re.match(r"(#.*\n)*(state_dir|storage|listen|repo|limit|rsync)\b", block):
                yield pytest.param(block, id=f"{page.stem}-{n}")


@pytest.mark.parametrize("block", recipes())
def test_recipes_are_taken(block, tmp_path):
    """As they stand in the pages, but for the files of another machine."""
    for name in re.findall(r"(?:credential:|/etc/mirrord/)([\w.-]+)", block):
        (tmp_path / name).write_text("me:secret\n")
        (tmp_path / name).chmod(0o600)
    conf = tmp_path / "mirrord.conf"
    conf.write_text(("" if "state_dir" in block else f'state_dir = "{tmp_path}/state"\n') +
                    ("" if re.search(r"^listen", block, re.M) else 'listen "127.0.0.1:0" { }\n') +
                    block.replace("/etc/mirrord/", f"{tmp_path}/"))
    done = subprocess.run([BUILD / "mirrord", "-t", "-c", conf], capture_output=True, text=True, check=False, timeout=60,
                          env=dict(os.environ, CREDENTIALS_DIRECTORY=str(tmp_path)))
    assert done.returncode == 0, done.stderr


def test_keys_of_the_status_are_those_that_are_told(mirrord, origin):
    m = mirrord(f'repo "data" {{ protocol = "generic" origin = "{origin.url}/" }}')
    text = (ROOT / "docs/operations.md").read_text()
    told = re.search(r"Keys of `status.json` are stable: (.*?)What is not known", text, re.S)[1]
    assert set(json.loads(m.get("/-/status.json").body)) <= set(re.findall(r"\w+", told))


def test_words_of_the_field():
    """A shelf is a local cache to those who use it; a table's titles say what the number is."""
    ours = re.compile(r"\b(the|a|node's|no) shelf\b|\bWIRE\b")
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/protocols").glob("*.md"), *(ROOT / "docs/man").iterdir()]
    helps = [subprocess.run([BUILD / "trainagent", *w], capture_output=True, text=True, check=False).stdout for w in (["--help"], ["preflight", "--list"])]
    titles = [(ROOT / f"server/ctl/{name}.c").read_text() for name in ("sync", "status")]
    found = [(p.name, m[0]) for p in pages for m in ours.finditer(p.read_text()) if p.name != "benchmarks.md"]
    assert found == [] and not any(ours.search(text) for text in helps)
    assert not any(re.search(r'"[^"]*\b(WIRE|FILL)\b', text) for text in titles)


def test_an_operator_reads_what_to_do_before_an_upgrade():
    newest = (ROOT / "CHANGES.md").read_text().split("\n## ")[1]
    assert re.match(r"[\d.]+\n\n### Before you upgrade\n", newest)
    assert "private vulnerability report" in (ROOT / "docs/security.md").read_text()
