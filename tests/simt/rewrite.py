#!/usr/bin/env python3
"""rewrite.py - turns a .cu file into C++ for tests/simt/simt.h: rewrite.py IN.cu > OUT.cc

    kernel<T><<<grid, block, shared, stream>>>(a, b);   ->  simt_launch(grid, ...)(K(a, b));
        with K = [&](auto... x) { return [=] { kernel<T>(x...); }; }, which has a and b as they are now
    extern __shared__ __align__(128) T name[];          ->  T *name = static_cast<T *>(simt_shared());
"""
import pathlib
import re
import sys

PAIRS = {"(": ")", "<": ">"}


def close_of(text, at):
    """The index behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += text[i] == text[at]
        depth -= text[i] == PAIRS[text[at]]
        if depth == 0:
            return i + 1
    raise SystemExit(f"rewrite.py: nothing closes {text[at:at + 40]!r}")


def kernel_before(text, end):
    """Where the kernel's name, with its template arguments, begins."""
    at = len(text[:end].rstrip())
    if text[at - 1] == ">":
        depth = 0
        while True:
            at -= 1
            depth += (text[at] == ">") - (text[at] == "<")
            if depth == 0:
                break
    return re.search(r"\w+$", text[:at]).start()


def launches(text):
    while (mark := text.find("<<<")) >= 0:
        begin, config_end = kernel_before(text, mark), text.index(">>>", mark)
        arguments = text.index("(", config_end)
        end = close_of(text, arguments)
        kernel = text[begin:mark].rstrip()
        later = f"[&](auto... x) {{ return [=] {{ {kernel}(x...); }}; }}{text[arguments:end]}"
        text = f"{text[:begin]}simt_launch({text[mark + 3:config_end]})({later}){text[end:]}"
    return text


def shared(text):
    return re.sub(r"extern __shared__ (?:__align__\(\d+\) )?(\w+) (\w+)\[\];",
                  r"\1 *\2 = static_cast<\1 *>(simt_shared());", text)


def main():
    path = pathlib.Path(sys.argv[1])
    print(f'#line 1 "{path}"')
    print(launches(shared(path.read_text())), end="")


if __name__ == "__main__":
    main()
