"""browser.py - a headless Chromium, spoken to over its DevTools pipe: a page at a width and in a colour scheme, what its scripts
and its layout say, a picture.

    with Browser(client("chromium"), tmp_path) as b: b.show(m.url("/"), width=400); b.ask("document.title")
"""
import base64
import fcntl
import json
import os
import select
import subprocess
import time

from harness.mirrord import SLOW

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server", "--hide-scrollbars",
         "--ignore-certificate-errors", "--remote-debugging-pipe"]

# What stands out of the page's sides, or is cut off in a box that it does not fit in: tags, classes, text.
OVERFLOW = """(() => {
    const width = document.documentElement.clientWidth;
    return [...document.body.querySelectorAll('*')].filter(e => {
        const r = e.getBoundingClientRect();
        return r.width > 0 && (r.right > width + 1 || r.left < -1);
    }).map(e => e.tagName + ' ' + (e.getAttribute('class') || '') + ' ' + e.textContent.slice(0, 60));
})()"""


class Browser:
    def __init__(self, program, folder, *flags):
        down, up = os.pipe(), os.pipe()
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (down[0], up[1])]

        def as_three_and_four():
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)
        self.child = subprocess.Popen([program, *FLAGS, f"--user-data-dir={folder}/browser", *flags], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=as_three_and_four)
        for fd in (down[0], up[1], *theirs):
            os.close(fd)
        self.down, self.up, self.number, self.held, self.events, self.session = down[1], up[0], 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Fetch.enable", handleAuthRequests=True)

    def __enter__(self):
        return self

    def __exit__(self, *why):
        os.close(self.down)  # the end of its pipe is its end
        os.close(self.up)
        self.child.wait(60 * SLOW)

    def hear(self, limit_s=120):
        end = time.monotonic() + limit_s * SLOW
        while b"\0" not in self.held:
            ready, _, _ = select.select([self.up], [], [], max(0, end - time.monotonic()))
            more = os.read(self.up, 1 << 20) if ready else b""
            assert more, "the browser says nothing more"
            self.held += more
        said, _, self.held = self.held.partition(b"\0")
        said = json.loads(said)
        if said.get("method") == "Fetch.authRequired":  # as a reader who presses Cancel sees the page
            self.say("Fetch.continueWithAuth", requestId=said["params"]["requestId"], authChallengeResponse={"response": "CancelAuth"})
        elif said.get("method") == "Fetch.requestPaused":
            self.say("Fetch.continueRequest", requestId=said["params"]["requestId"])
        return said

    def say(self, method, **params):
        self.number += 1
        letter = {"id": self.number, "method": method, "params": params}
        if self.session:
            letter["sessionId"] = self.session
        os.write(self.down, json.dumps(letter).encode() + b"\0")
        return self.number

    def call(self, method, **params):
        number = self.say(method, **params)
        while (said := self.hear()).get("id") != number:
            self.events.append(said)
        assert "error" not in said, said
        return said["result"]

    def show(self, url, width=1280, scheme="light", headers=None):
        """Goes there and waits until it is loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 800)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Network.enable")
        self.call("Network.setExtraHTTPHeaders", headers=headers or {})
        self.events.clear()
        assert "errorText" not in (gone := self.call("Page.navigate", url=url)), gone
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.hear())

    def ask(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def overflow(self):
        return self.ask(OVERFLOW)

    def picture(self, path):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        with open(path, "wb") as f:
            f.write(base64.b64decode(shot["data"]))
