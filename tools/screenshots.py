"""Pictures of the explorer for the docs: pretrained models in Chromium; times stand in them.

    make screenshots     # writes docs/images/explorer-*.png

Chromium is looked for in CATO_CHROMIUM, then on the PATH.
"""

import os
import shutil
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import sync_playwright

from cato.benchmarks import BENCHMARKS
from cato.errors import InputError
from cato.files import atomic_write
from cato.progress import note
from tools.hostile.served import ServerProcess
from tools.results import ROOT

FOLDER = ROOT / "docs" / "images"
PATIENCE = 600_000  # Milliseconds; solvers may have to be compiled.
NAMES = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Picture:
    """A page as a visitor sees it."""

    benchmark: str
    width: int = 1280
    height: int = 1725
    scale: float = 0.625  # Pixels of the picture per pixel of the page.
    scheme: str = "light"
    is_checked: bool = True  # Whether it is compared with the solver.


PICTURES = {
    "darcy": Picture("darcy"),
    "airfoil": Picture("airfoil", height=1490, scheme="dark"),
    "phone": Picture("elasticity", width=390, height=1080, scale=1, is_checked=False),
}


def take(browser: Any, address: str, picture: Picture) -> bytes:
    """A picture as PNG."""
    size = {"width": picture.width, "height": picture.height}
    context = browser.new_context(
        viewport=size,
        device_scale_factor=picture.scale,
        color_scheme=picture.scheme,
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}/explorer/#{picture.benchmark}")
    page.wait_for_selector("body[data-settled]", state="attached")
    for _ in range(2 if picture.is_checked else 0):  # the first check compiles the solver
        page.keyboard.press("s")
        page.wait_for_selector("#check[disabled]")
        page.wait_for_selector("#check:not([disabled])")
    if picture.is_checked:
        page.wait_for_selector("#verdict:visible")
    page.evaluate("document.activeElement.blur()")
    png = page.screenshot(animations="disabled")
    context.close()
    return bytes(png)


def main() -> None:
    """Write all pictures."""
    chromium = os.environ.get("CATO_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        raise InputError("no Chromium: install it, or name it by CATO_CHROMIUM")
    with ServerProcess(*BENCHMARKS) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, picture in PICTURES.items():
            target = FOLDER / f"explorer-{name}.png"
            with atomic_write(target) as temporary:
                temporary.write_bytes(take(browser, server.url, picture))
            note(f"wrote {target}")
        browser.close()


if __name__ == "__main__":
    main()
