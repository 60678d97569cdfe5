"""packing.py - the packages of a tree that is built."""
import os
import subprocess

UNCOMPRESSED = {"DPKG_DEB_COMPRESSOR_TYPE": "none"}  # they are installed here and now


def pack(tree, work, **env):
    """Packs into a new folder, which has the packages and, in debian/tmp, all that `make install` installs."""
    work.mkdir()
    subprocess.run(["cp", "-r", tree / "debian", work], check=True)
    done = subprocess.run(["debian/rules", "binary"], cwd=work, env={**os.environ, **UNCOMPRESSED, **env, "TOP": str(tree), "DEST": str(work)},
                          capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
