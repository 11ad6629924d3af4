"""A headless browser for tests: Debian's chromium, driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = (
    "--no-sandbox --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader"
)


@contextmanager
def browser() -> Iterator[Any]:
    """Give a browser, or skip the test where none can be had."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install mpimbs[test]")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs chromium: .ci/chromium installs it as root")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS.split())
        try:
            yield found
        finally:
            found.close()
