"""The live demo in a real browser: a panel a screen, legible and within its edges, keys, notes, panels that answer.

Screenshots are kept in `results/screenshots`.
"""

import sys

import pytest
from served_pages import ROOT, TOKEN, kept, opened, served

from course.lesson19.desk import free_port
from course.panels.strategies import strategy_report

pytestmark = pytest.mark.browser
SIZES = {"1280x720": (1280, 720), "1920x1080": (1920, 1080)}
PANELS = 6
LETTERS = 20  # pixels on a screen of 1280 x 720
# Of the panel that is shown: what is smaller than wanted, beyond the edge, cut off, or covered by the foot of the page.
FAULTS = """
([least, screen]) => {
  const faults = [], seen = (node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const scale = document.querySelector("#rendered_cells").getBoundingClientRect().width / 1280;
  const foot = Math.min(...[...document.querySelectorAll("#foot span")].map((one) => one.getBoundingClientRect().top));
  if (document.documentElement.scrollWidth > innerWidth || document.documentElement.scrollHeight > innerHeight)
    faults.push("the page scrolls");
  const small = (node, words) => {
    if (parseFloat(getComputedStyle(node).fontSize) * scale < least * scale - 0.1) faults.push(`small: ${words}`);
  };
  const walker = document.createTreeWalker(screen, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), parent = walker.currentNode.parentElement;
    if (!text || parent.closest("style, script, option") || !seen(parent)) continue;
    small(parent, text);
    const range = document.createRange();
    range.selectNodeContents(parent);
    const box = range.getBoundingClientRect();
    if (box.width && (box.left < -1 || box.top < -1 || box.right > innerWidth + 1 || box.bottom > foot + 4))
      faults.push(`beyond the edge: ${text}`);
  }
  for (const control of screen.querySelectorAll("input, select, button, img")) {
    if (!seen(control)) continue;
    const box = control.getBoundingClientRect(), name = control.outerHTML.slice(0, 90);
    if (box.right > innerWidth + 1 || box.bottom > foot + 4) faults.push(`beyond the edge: ${name}`);
    if (control.tagName !== "IMG") small(control, name);
    // Of 200 dots per inch, in which letters of 10 points are drawn.
    else if ((box.width / scale / control.naturalWidth) * 200 * 10 / 72 < least) faults.push("a picture is too small");
  }
  for (const box of screen.querySelectorAll(".course-panel, .widget-hbox, .widget-html-content, .course-panel [title]"))
    if (box.scrollWidth > box.clientWidth + 8 || box.scrollHeight > box.clientHeight + 8)
      faults.push(`cut off: ${box.className} ${box.textContent.slice(0, 60)}`);
  return faults;
}
"""


@pytest.fixture(scope="module")
def demo(browser):
    """The page, what went wrong on it, and its port; the page is opened once, for its panels take time."""
    port = free_port()
    command = [sys.executable, "-m", "course", "demo", "--no-browser", f"--port={port}", f"--token={TOKEN}"]
    with served(command, f"http://localhost:{port}", ROOT / "notebooks"):
        page, wrong = opened(browser, f"http://localhost:{port}/?token={TOKEN}")
        page.locator("#curtain").wait_for(state="detached")
        yield page, wrong, port
        page.close()


@pytest.fixture(autouse=True)
def as_before(demo):
    """Each test begins on the first panel of a projector's page with no control in focus."""
    page, _, _ = demo
    page.set_viewport_size({"width": 1280, "height": 720})
    page.keyboard.press("Escape")
    page.keyboard.press("Home")
    assert now(page) == 1


def now(page) -> int:
    """The number of the panel that is shown."""
    return page.evaluate(
        "[...document.querySelectorAll('.screen')].findIndex((one) => one.classList.contains('now')) + 1"
    )


def panel(page, number: int):
    """Go to a panel."""
    page.keyboard.press("Escape")
    page.keyboard.press(str(number))
    page.locator(".screen.now .course-panel").wait_for()
    return page.locator(".screen.now")


def says(screen, text: str) -> str:
    """Wait until a panel says something, and return the whole sentence."""
    place = screen.locator("[role=status], [role=alert]").filter(has_text=text)
    place.wait_for()
    return place.inner_text()


def test_every_panel_answers(demo):
    """To a control each, in a browser; what panels compute is for `test_panels`."""
    page, _, _ = demo
    assert page.locator(".screen").count() == PANELS
    inside = panel(page, 1)
    inside.get_by_label("or").select_option("If the file does not exist, an")
    assert "Expected next: ‘·error’" in says(inside, "8 tokens. In block 0, head 2")
    inside.get_by_role("slider").first.focus()
    page.keyboard.press("ArrowRight")
    says(inside, "In block 1, head 2")
    inside.get_by_label("Text").fill("")
    says(inside, "the text is empty")
    strategies = panel(page, 2)
    strategies.get_by_label("Strategy").select_option("last_layers")
    says(strategies, f"{strategy_report('tiny', 'last_layers').trainable_parameters:,} of 4,036,800")
    assert strategies.get_by_label("embedding: 0 of 786,432 trained").is_visible()
    race = panel(page, 3)
    race.get_by_label("Learning rate").nth(1).select_option("0.1")
    race.get_by_label("Epochs").select_option("4")
    page.keyboard.press("Escape")
    page.keyboard.press(" ")
    says(race, "lora, rate 0.1 diverged at step")
    race.get_by_role("button", name="Stop").press("Enter")  # from the keyboard
    assert "full, rate 0.001: step" in says(race, "Stopped, and kept.")
    fitting = panel(page, 4)
    page.keyboard.press(" ")
    says(fitting, "Fits RTX 4060 8GB")
    ladder = panel(page, 5)
    page.keyboard.press(" ")
    says(ladder, "Attempt 1 of 6")
    answers = panel(page, 6)
    page.keyboard.press(" ")
    answers.get_by_text("600k rows. This, rusqlite 0.29.0").last.wait_for()


@pytest.mark.parametrize("size", SIZES)
def test_every_panel_is_legible_and_within_its_screen(demo, size):
    page, _, _ = demo
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    for number in range(1, PANELS + 1):
        screen = panel(page, number)
        page.wait_for_timeout(150)
        kept(page, f"demo_{number}_{size}")
        shown = page.locator("#rendered_cells").bounding_box()
        assert (round(shown["width"]), round(shown["height"])) == (width, height), "the whole screen"
        assert page.evaluate(f"({FAULTS})", [LETTERS, screen.element_handle()]) == [], number


def test_planted_faults_are_found(demo):
    page, _, _ = demo
    handle = panel(page, 2).element_handle()
    planted = {
        "small: planted": '<p class="planted" style="font-size:16px">planted</p>',
        "beyond the edge: planted": '<p class="planted" style="position:fixed;left:1250px;font-size:22px">planted</p>',
    }
    for fault, markup in planted.items():
        handle.evaluate("(place, markup) => place.insertAdjacentHTML('beforeend', markup)", markup)
        assert fault in page.evaluate(f"({FAULTS})", [LETTERS, handle])
        page.evaluate("document.querySelector('.planted').remove()")


def test_keys_turn_panels_and_leave_controls_alone(demo):
    page, _, _ = demo
    turns = {"ArrowRight": 2, "PageDown": 3, "PageUp": 2, "ArrowLeft": 1, "6": 6, "PageDown ": 6, "Home": 1, "End": 6}
    for key, expected in turns.items():
        page.keyboard.press(key.strip())
        assert now(page) == expected, key
    text = panel(page, 1).get_by_label("Text")
    text.click()
    page.keyboard.press("End")
    page.keyboard.type(" n2")
    page.keyboard.press("ArrowLeft")
    assert now(page) == 1 and text.input_value().endswith(" n2") and not page.locator("#notes.open").count()
    text.fill("In Rust, the borrow checker")


def test_notes_are_hidden_until_their_key_and_each_panel_has_some(demo):
    page, _, _ = demo
    notes = page.locator("#notes")
    for number in range(1, PANELS + 1):
        assert panel(page, number).locator("h2").text_content().endswith("?"), "the title is a question for the room"
        assert not notes.is_visible()
        page.keyboard.press("n")
        assert notes.is_visible() and 2 <= notes.text_content().count(". ") + 1 <= 5, number
        page.keyboard.press("n")
    assert not notes.is_visible()


def test_no_errors_no_other_server_no_code_and_a_token(demo, browser):
    page, wrong, port = demo
    assert wrong == []
    stranger = browser.new_context().new_page()
    stranger.goto(f"http://localhost:{port}/")
    assert "login" in stranger.url
    assert not page.locator(".jp-InputArea-editor, .CodeMirror").count()
