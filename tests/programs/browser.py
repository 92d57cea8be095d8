"""A browser without windows, told what to do through a pipe (Chrome's DevTools protocol): no port, no package."""
import base64
import json
import os
import select
import shutil
import struct
import subprocess
import tempfile
import time
import zlib

from harness import SOURCE

BROWSER = SOURCE / "build" / "browser" / "chromium"


class Page:
    """One page in a browser of its own. `errors` has what its console and its scripts complained of, `requests` the addresses that
    it asked for."""

    def __init__(self, url, width=1400, height=1000, dark=False, deadline_s=60):
        if not BROWSER.exists():
            raise FileNotFoundError(f"{BROWSER}: tools/browser.sh makes it")
        self.errors, self.requests, self.loaded = [], [], False
        self._end = time.monotonic() + deadline_s
        self._number, self._unread, self._session = 0, b"", None
        self._profile = tempfile.mkdtemp(prefix="lockstep-browser-")
        self._start()
        try:
            target = self._call("Target.createTarget", url="about:blank", width=width, height=height)["targetId"]
            self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self._call(f"{domain}.enable")
            self.resize(width, height)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            self._call("Emulation.setEmulatedMedia", features=[scheme])
            self.go(url)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def go(self, url):
        """Shows another page in place of this one."""
        self.loaded = False
        self._call("Page.navigate", url=url)
        while not self.loaded:
            self._take(self._read())

    def resize(self, width, height):
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def evaluate(self, expression):
        result = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def point_at(self, x, y):
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, whole=False):
        """PNG, of what a window shows or of the whole page."""
        clip = {}
        if whole:
            size = self._call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"captureBeyondViewport": True, "clip": size | {"scale": 1}}
        return base64.b64decode(self._call("Page.captureScreenshot", format="png", **clip)["data"])

    def close(self):
        for pipe in (self._to, self._from):
            os.close(pipe)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def _start(self):
        theirs_in, self._to = os.pipe()
        self._from, theirs_out = os.pipe()
        flags = ("--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                 f"--user-data-dir={self._profile}")
        # The browser reads descriptor 3 and writes to 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", str(BROWSER), *flags],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)

    def _call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._take(answer)

    def _read(self):
        while b"\0" not in self._unread:
            left = self._end - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                raise TimeoutError("the browser did not answer in time")
            part = os.read(self._from, 1 << 16)
            if not part:
                raise ConnectionError("the browser has gone")
            self._unread += part
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)

    def _take(self, event):
        method, params = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(params["args"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"])


def colours(png):
    """How many pixels of a PNG as Chromium writes it (8 bits per channel, not interlaced) have each (r, g, b)."""
    width, height, channels, data = 0, 0, 0, b""
    at = 8
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert (depth, interlaced) == (8, 0) and colour in (2, 6), (depth, interlaced, colour)
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            data += body
        at += size + 12
    found, line = {}, bytearray(width * channels)
    raw = zlib.decompress(data)
    for row in range(height):
        begin = row * (len(line) + 1)
        line = _unfiltered(raw[begin], raw[begin + 1:begin + 1 + len(line)], line, channels)
        pixels = zip(line[0::channels], line[1::channels], line[2::channels])
        for pixel in pixels:
            found[pixel] = found.get(pixel, 0) + 1
    return found


def _unfiltered(kind, line, above, step):
    line = bytearray(line)
    if kind == 0:
        return line
    for i in range(len(line)):
        left = line[i - step] if i >= step else 0
        up = above[i]
        corner = above[i - step] if i >= step else 0
        line[i] = (line[i] + (left, up, (left + up) // 2, _paeth(left, up, corner))[kind - 1]) & 255
    return line


def _paeth(left, up, corner):
    guess = left + up - corner
    return min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]
