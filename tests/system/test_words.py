"""Names, comments and docs use the terms of the field (tests/words.py): no figure becomes worse, and what is worse would be seen."""
import subprocess
import sys

from harness.mirrord import ROOT

TREE = {
    "docs/glossary.md": "| term | what it is |\n|---|---|\n| seal | It turns a stage into a blob. |\n",
    "docs/page.md": "[There](glossary.md) and [nowhere](lost.md), said in docs/gone.md and decision 0007.\n",
    "docs/decisions/0001-one.md": "Superseded: the sheaf, research/one, was DESIGN 3's.\n",
    "server/cache/fill.h": "/* What a fill is (STYLE 2). A shelf is none here. */\nint fill_start(void);\n",
    "server/cache/filler.h": "int begin(void); /* decision 0001 */\n",
    "server/sync/fill.h": "int fill_it(void);\n#define S \"a scribe\"\n",
    "agent/pins.c": "/* The fate of a corridor\n * and its errand. */\nint shelf_pin(int a); " + 80 * "/" + "\n",
    "common/os/locks.def": "LOCK(LOCK_LEAF)\n",
    "common/os/lock.c": "int lock;\n",
    "agent/pin.c": "int pin;\nstatic void twice(void)\n{\n}\nstatic int usage(int a)\n{\n}\nstatic int begin(int a,\n                 int b)\n{\n}\n",
    "agent/late.c": "static int begin(void);\nstatic int usage(int a)\n{\n}\nstatic void twice(void)\n{\n}\n",
    "common/one.c": "static int usage(int a)\n{\n}\nstatic const char *begin(int a)\n{\n    return begins(a);\n}\n",
    "kernels/cpu/one.c": "static void FN(begin)(int a)\n{\n}\n/* static void twice(void)\n{\n} */\nstatic const int twice[] = {1};\n",
}


def words(*more):
    done = subprocess.run([sys.executable, ROOT / "tests/words.py", *more], capture_output=True, text=True, check=False, timeout=600)
    return done.returncode, done.stdout


def test_a_small_tree(tmp_path):
    for at, text in TREE.items():
        (tmp_path / at).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / at).write_text(text)
    code, said = words("--quick", "--list", tmp_path)
    found, name = {}, None
    for line in said.splitlines():
        if line[:8].strip().isdigit():
            name = line[8:71].strip()
            found[name] = []
        elif line.startswith("          "):
            found[name].append(line.strip())
    assert code == 0
    assert found["identifiers with a term that the field has another word for"] == ["fill_start 1", "shelf_pin 1"]
    assert found["files and folders named by such a term"] == ["server/cache/fill.h", "server/cache/filler.h"]
    assert [line.partition(": ")[0] for line in found["lines of comments and docs with such a term"]] == [
        "agent/pins.c:1", "agent/pins.c:2", "server/cache/fill.h:1"]
    assert found["citations that lead nowhere"] == [
        "docs/decisions/0001-one.md:1: research/one", "docs/decisions/0001-one.md:1: DESIGN 3",
        "docs/page.md:1: docs/gone.md", "docs/page.md:1: decision 0007", "docs/page.md:1: lost.md", "server/cache/fill.h:1: STYLE 2"]
    assert found["pairs of one stem in a folder"] == ["agent: pin, pins", "server/cache: fill, filler"]
    assert found["static names defined in three or more files"] == ["begin: agent/pin.c, common/one.c, kernels/cpu/one.c"]
    assert found["files with a line beyond the formatter's limit"] == ["agent/pins.c"]


def test_no_figure_is_worse_than_recorded():
    code, said = words()
    assert code == 0, said
