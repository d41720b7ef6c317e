"""Debian's Chromium, driven over the DevTools protocol: what a person sees, does, and what the console says."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import aiohttp

OUT = Path(__file__).parent.parent.parent / "out" / "dashboard"
PATIENCE_SECONDS = 30.0
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40}
DESKTOP, PHONE = (1280, 900), (390, 844)


class Tab:
    """One page in the browser."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._loop = loop
        self._socket = socket
        self._number = 0
        self.complaints: list[str] = []  # of the console, and of the network
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(self._call(method, parameters), PATIENCE_SECONDS))

    async def _call(self, method: str, parameters: dict[str, Any]) -> Any:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json()
            self._hear(message)
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]

    def _hear(self, message: dict[str, Any]) -> None:
        told = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["exceptionDetails"])[:500])
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.complaints.append(json.dumps(told["args"])[:500])
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def evaluate(self, expression: str) -> Any:
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def waits(self, expression: str, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Until it is true."""
        deadline = time.monotonic() + timeout_seconds
        while not self.evaluate(f"!!({expression})"):
            assert time.monotonic() < deadline, f"waited in vain for {expression}; shown: {self.text()[:2000]}"
            time.sleep(0.1)

    def shows(self, text: str, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        self.waits(f"document.body?.innerText?.includes({json.dumps(text)})", timeout_seconds)

    def text(self) -> str:
        return str(self.evaluate("document.body?.innerText"))

    def press(self, key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **text)

    def types(self, text: str) -> None:
        """Into whatever has the focus."""
        self.call("Input.insertText", text=text)

    def looks(self, scheme: str = "light", size: tuple[int, int] = DESKTOP) -> None:
        """As somebody with such a screen, and such a taste, sees it."""
        width, height = size
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        is_phone = size == PHONE
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone
        )

    def screenshot(self, name: str) -> Path:
        """The whole page, into out/."""
        OUT.mkdir(parents=True, exist_ok=True)
        raw = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path = OUT / f"{name}.png"
        path.write_bytes(base64.b64decode(raw["data"]))
        return path


@contextmanager
def browsing() -> Iterator[Tab]:
    """A browser without a window, on its own profile; gone afterwards."""
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
        )
        own = ("--remote-debugging-port=0", f"--user-data-dir={profile}", "--lang=en-GB", "about:blank")
        process = subprocess.Popen(["chromium", *options, *own], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            address = _page_address(Path(profile) / "DevToolsActivePort")
            session = loop.run_until_complete(_session())
            try:
                yield Tab(loop, loop.run_until_complete(session.ws_connect(address, max_msg_size=0)))
            finally:
                loop.run_until_complete(session.close())
        finally:
            process.terminate()
            process.wait(10)
            loop.close()


async def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


def _page_address(told: Path) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (told.exists() and "\n" in told.read_text()):
        assert time.monotonic() < deadline, "the browser does not come up"
        time.sleep(0.05)
    port = told.read_text().splitlines()[0]
    with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE_SECONDS) as answer:
        pages = [each for each in json.load(answer) if each["type"] == "page"]
    return str(pages[0]["webSocketDebuggerUrl"])
