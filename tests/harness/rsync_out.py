"""mirrord with a door for rsync clients, and the installed client."""
import os
import subprocess

from .mirrord import free_port


class Out:
    def __init__(self, start, rsync, more="", before=""):
        self.port = free_port()
        self.rsync = rsync
        self.m = start(f'repo "models" {{ protocol = "hosted" }}\nrepo "secret" {{ protocol = "hosted" access '
                       f'{{ anonymous = none }} }}\n{before}\nrsync "127.0.0.1:{self.port}" {{ {more} }}')
        self.token = self.m.token("p", "publish:*")
        self.url = f"rsync://127.0.0.1:{self.port}"

    def put(self, path, data, repo="models/me/tree"):
        answer = self.m.put(f"/{repo}/{path.replace(' ', '%20')}", data, token=self.token)
        assert answer.status in (200, 201), answer

    def run(self, *args, check=True):
        run = subprocess.run([self.rsync, *map(str, args)], capture_output=True, text=True, timeout=240,
                             stdin=subprocess.DEVNULL)
        assert not check or run.returncode == 0, run.stderr
        return run


def contents(folder):
    return {os.path.relpath(os.path.join(at, n), folder): open(os.path.join(at, n), "rb").read()
            for at, _, names in os.walk(folder) for n in names}
