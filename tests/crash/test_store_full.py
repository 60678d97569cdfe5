"""The store on a small file system that fills up to its last byte: nothing is lost, reads go on, writes come back."""
import os
import pathlib
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("MIRROR_BUILD", "build"))
PROGRAM = BUILD / "harness" / "store_load"


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_full_disk(tmp_path, kind):
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mount = tmp_path / "mnt"
    mount.mkdir()
    if kind == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", mount]
    else:
        image = tmp_path / "image"
        with open(image, "wb") as f:
            f.truncate(128 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=False, capture_output=True)
        command = ["mount", "-o", "loop", image, mount]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"cannot mount {kind} here: {made.stderr.strip()}")
    try:
        done = subprocess.run([PROGRAM, "fill", mount], capture_output=True, text=True, timeout=200)
    finally:
        subprocess.run(["umount", mount], check=True)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    assert "whole: kept" in done.stdout
