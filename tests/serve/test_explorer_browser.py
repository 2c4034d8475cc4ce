"""The explorer as its visitors meet it: a real server, a real browser, no network.

Looks for Chromium in CATO_CHROMIUM, then on the PATH.
"""

import hashlib
import os
import re
import shutil
import time

import pytest
from explored import build_explored, unpack
from raw import running_server

from cato.benchmarks import BENCHMARKS
from cato.serve.settings import ServeSettings

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = os.environ.get("CATO_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
if CHROMIUM is None:
    pytest.skip("no Chromium: install it or name it by CATO_CHROMIUM", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api", reason="needs `pip install playwright`")

PATIENCE = 120_000
"""Milliseconds; a loaded machine starts a solver process slowly."""
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def models():
    return {name: build_explored(name) for name in BENCHMARKS}


@pytest.fixture(scope="module")
def address(models):
    with running_server(models, ServeSettings()) as (port, _):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, address):
    """Opens a benchmark; at the end nothing may have gone wrong nor have left the machine."""
    contexts, wrong = [], []

    def build(benchmark, size=DESKTOP, scheme="light", is_still=True):
        motion = "reduce" if is_still else "no-preference"
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion=motion)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "request",
            lambda request: request.url.startswith((address, "data:")) or wrong.append(request.url),
        )
        page.goto(f"{address}/explorer/#{benchmark}")
        settled(page, None)
        return page

    build.wrong = wrong
    yield build
    for context in contexts:
        context.close()
    assert wrong == []


def settled(page, before):
    """Wait for the next answer; returns a mark to wait for the one after it."""
    mark = "body[data-settled]" + (f':not([data-settled="{before}"])' if before else "")
    page.wait_for_selector(mark, state="attached")
    return page.get_attribute("body", "data-settled")


def picture(page, selector="#prediction canvas"):
    """What is drawn, as a checksum."""
    data = page.locator(selector).first.evaluate("canvas => canvas.toDataURL()")
    return hashlib.sha256(data.encode()).hexdigest()


def wait_until(page, condition):
    deadline = time.monotonic() + PATIENCE / 1000
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for does not happen"
        page.wait_for_timeout(50)


def has_changed(page, before, selector="#prediction canvas"):
    wait_until(page, lambda: picture(page, selector) != before)
    return True


def drag(page, box, start, end):
    """The pointer from one place to another, in parts of a box."""
    at = lambda place: (box["x"] + place[0] * box["width"], box["y"] + place[1] * box["height"])  # noqa: E731
    page.mouse.move(*at(start))
    page.mouse.down()
    page.mouse.move(*at(end), steps=4)
    page.mouse.up()


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_every_benchmark_is_shown_with_prediction_and_chart_on_any_screen(visit, benchmark):
    page = visit(benchmark)
    chosen = page.locator('#benchmarks [aria-pressed="true"]')
    assert chosen.inner_text() == BENCHMARKS[benchmark].title
    assert re.search(r"\d+ ms by the model", page.inner_text("#speed"))
    assert page.get_attribute("#range", "data-verdict") == "unknown"  # of an untrained model
    assert "training range" in page.inner_text("#range")
    for canvas in page.locator("#prediction canvas, #charts canvas").all():
        colours = canvas.evaluate(
            "c => new Set(new Uint32Array(c.getContext('2d')"
            ".getImageData(0, 0, c.width, c.height).data.buffer)).size"
        )
        assert colours > 5
    assert page.is_hidden("#trouble")
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for handle in page.locator(".handle").all():
        box = handle.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]


def test_painting_changes_the_prediction_and_the_server_gets_what_was_painted(visit):
    page = visit("darcy")
    sent = []
    page.on(
        "request",
        lambda request: request.method == "POST" and sent.append(request.post_data_buffer),
    )
    before, medium = picture(page), picture(page, "#editor canvas")
    drag(page, page.locator("#editor .stage").bounding_box(), (0.2, 0.3), (0.8, 0.4))
    page.click('[data-colour="0"]')
    drag(page, page.locator("#editor .stage").bounding_box(), (0.2, 0.6), (0.8, 0.7))
    assert has_changed(page, before)
    assert has_changed(page, medium, "#editor canvas")
    along = [(x, 0.7 - (x - 0.2) / 6) for x in (0.25, 0.5, 0.75)]  # y upwards, the page's downwards

    def both_strokes_were_sent():
        values = unpack(sent[-1])[1]["values"]
        top = len(values) - 1
        return all(
            values[round(x * top), round(y * top)] == 1
            and values[round(x * top), round((y - 0.3) * top)] == 0
            for x, y in along
        )

    wait_until(page, both_strokes_were_sent)  # a request may still be waiting for the one before it
    page.click("#reset")
    page.click('[data-colour="1"]')
    page.wait_for_timeout(500)
    plain = picture(page)
    page.click("#draw")
    assert has_changed(page, plain)


@pytest.mark.parametrize("benchmark", ["airfoil", "pipe", "plasticity", "elasticity"])
def test_dragging_a_point_changes_shape_and_prediction(visit, benchmark):
    page = visit(benchmark)
    before, shape = picture(page), picture(page, "#editor canvas")
    handle = page.locator(".handle").nth(3)
    value = handle.get_attribute("aria-valuenow")
    box = handle.bounding_box()
    away = -14 if handle.evaluate("h => h.getAttribute('aria-valuenow') < 0") else 14
    drag(page, box, (0.5, 0.5), (0.5, 0.5 + away / box["height"]))
    assert handle.get_attribute("aria-valuenow") != value
    assert has_changed(page, before)
    assert has_changed(page, shape, "#editor canvas")


def test_the_keyboard_alone_is_enough(visit):
    page = visit("airfoil")
    before = picture(page)
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.locator(".handle:focus").count():
            break
    focused = page.locator(".handle:focus")
    assert focused.evaluate("h => getComputedStyle(h).outlineStyle") != "none"
    value = float(focused.get_attribute("aria-valuenow"))
    for _ in range(4):
        page.keyboard.press("ArrowUp" if value < 0 else "ArrowDown")
    step = 4 * 0.0025 * (1 if value < 0 else -1)
    assert float(focused.get_attribute("aria-valuenow")) == pytest.approx(value + step, abs=2e-4)
    assert has_changed(page, before)
    before = picture(page)
    page.keyboard.press("r")
    assert has_changed(page, before)


def test_the_keyboard_paints(visit):
    page = visit("darcy")
    page.click("#reset")
    page.focus("#editor .stage")
    page.wait_for_timeout(500)
    medium, before = picture(page, "#editor canvas"), picture(page)
    for key in ("ArrowLeft", "ArrowUp", "]", "x", "x", " "):
        page.keyboard.press(key)
    assert has_changed(page, medium, "#editor canvas")
    page.wait_for_timeout(500)
    if picture(page) == before:  # this material was there already
        for key in ("x", " "):
            page.keyboard.press(key)
    assert has_changed(page, before)


def test_colours_stay_while_one_input_is_edited(visit):
    page = visit("airfoil")
    legend = lambda: re.sub("[≤≥ ]", "", page.inner_text("#prediction .legend"))  # noqa: E731
    before, shown = picture(page), legend()
    handle = page.locator(".handle").nth(3)
    handle.focus()
    for _ in range(8):
        page.keyboard.press("PageUp")
    assert has_changed(page, before)
    assert legend() == shown

    def another_input_has_its_own_colours():
        mark = page.get_attribute("body", "data-settled")
        page.click("#draw")
        settled(page, mark)
        return legend() != shown  # the ranges of two inputs may have the same three digits

    wait_until(page, another_input_has_its_own_colours)
    page.click("#reset")
    wait_until(page, lambda: legend() == shown)


def test_the_solver_is_asked_and_the_error_shown(visit):
    page = visit("darcy")
    page.keyboard.press("s")
    page.wait_for_selector("#verdict:visible")
    error = float(page.get_attribute("#verdict", "data-error"))
    assert 0 < error < 1
    told = page.inner_text('#verdict [data-figure="error"]')
    assert float(told.split("%")[0]) == pytest.approx(100 * error, rel=0.01)
    assert page.get_attribute("#verdict", "aria-live") == "polite"
    assert page.locator("#comparison canvas[role=img]").count() == 3
    legends = page.locator("#comparison .legend").all_inner_texts()
    assert legends[0] == legends[1] != legends[2]  # truth and prediction share a scale
    page.locator("#editor .stage").click()
    page.wait_for_selector("#comparison.stale")
    assert "changed" in page.inner_text("#check-state")


def test_vortices_are_played_and_compared_frame_by_frame(visit):
    page = visit("navier_stokes", is_still=False)
    page.wait_for_selector("#timeline:visible")
    assert "t = " in page.inner_text("#timeline output")
    before = picture(page)
    assert has_changed(page, before)  # it plays by itself
    if page.inner_text("#timeline button") == "Pause":
        page.click("#timeline button")
    page.focus("#timeline input")
    page.keyboard.press("End")
    assert page.inner_text("#timeline output") == "t = 20 (predicted)"
    page.click("#check")
    page.wait_for_selector("#verdict:visible")
    last = picture(page, "#comparison canvas")
    page.focus("#timeline input")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#timeline output") == "t = 19 (predicted)"
    assert has_changed(page, last, "#comparison canvas")


def test_dark_and_light_follow_the_system_until_chosen(visit):
    page = visit("pipe", scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    brightness = lambda: sum(map(int, re.findall(r"\d+", page.evaluate(ground))[:3])) / 3  # noqa: E731
    assert brightness() < 60
    drawn = picture(page, "#editor canvas")
    page.click("#theme")
    assert brightness() > 200
    assert has_changed(page, drawn, "#editor canvas")
    page.reload()
    settled(page, None)
    assert brightness() > 200


def test_what_goes_wrong_is_said_in_words(visit):
    page = visit("pipe")
    answers = [(503, "busy")] * 2 + [(422, "the pipe is too bent")]
    asked = []

    def answer(route):
        status, words = answers[min(len(asked), 2)]
        asked.append(status)
        route.fulfill(status=status, json={"detail": words})

    page.route("**/predict", answer)
    page.click("#draw")
    page.wait_for_selector("#trouble:visible")
    assert "the pipe is too bent" in page.inner_text("#trouble")
    assert asked == [503, 503, 422]  # overload was not worth a word
    page.unroute("**/predict")
    page.click("#draw")
    page.wait_for_selector("#trouble", state="hidden")
    # The browser itself notes every refusal, as it should; nothing else may be there.
    visit.wrong[:] = [line for line in visit.wrong if "Failed to load resource" not in line]


def test_the_page_of_the_api_works_under_its_policy(visit, address):
    page = visit("pipe")
    page.goto(f"{address}/docs")
    page.wait_for_selector("details code")
    assert "/models/{name}/predict" in page.inner_text("#routes")
    page.locator("summary", has_text="/health").click()
    page.locator("details[open] button", has_text="send").click()
    page.wait_for_selector("details[open] > pre:visible")
    assert '"ready":true' in page.inner_text("details[open] > pre")


TOKEN = "correct-horse-battery"


@pytest.fixture
def guarded(models):
    with running_server({"pipe": models["pipe"]}, ServeSettings(), TOKEN) as (port, _):
        yield f"http://127.0.0.1:{port}/explorer/"


def test_the_page_asks_for_the_token(browser, guarded):
    with browser.new_context(viewport=DESKTOP) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(guarded)
        for word, expected in (("wrong-wrong-wrong", "not the token"), (TOKEN, "")):
            page.fill("dialog input", word)
            page.click("dialog button")
            if expected:
                page.wait_for_selector(f"dialog:has-text('{expected}')")
        settled(page, None)
        assert page.locator("dialog").count() == 0
        page.reload()  # the tab remembers it
        settled(page, None)


def test_the_token_may_be_in_the_address_and_does_not_stay_there(browser, guarded):
    with browser.new_context(viewport=DESKTOP) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{guarded}#pipe&token={TOKEN}")
        settled(page, None)
        assert page.url == f"{guarded}#pipe"
        page.click("#draw")
        page.wait_for_selector("#trouble", state="hidden")
