"""The live demo in a real browser: a panel a screen, legible from the back, keys, notes, and panels that answer."""

import json
import sys

import pytest
from served_pages import TOKEN, free_port, kept, opened, served

from course.panels import strategy_report

pytestmark = pytest.mark.browser
SIZES = {"1280x720": (1280, 720), "1920x1080": (1920, 1080)}
PANELS = 6
LETTERS = 22  # pixels on the screen
TOLD = """
window.told = [];
setInterval(() => {
  const text = document.querySelector("#doing")?.textContent;
  if (text && told.at(-1) !== text) told.push(text);
}, 10);
"""
# Of the panel that is shown: what is smaller than wanted, beyond the edge, cut off, or written over something else.
FAULTS = """
([least, screen]) => {
  const faults = [], seen = (node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const scale = document.querySelector("#rendered_cells").getBoundingClientRect().width / 1280;
  const roots = [screen, document.querySelector("#foot")];
  if (document.documentElement.scrollWidth > innerWidth || document.documentElement.scrollHeight > innerHeight)
    faults.push("the page scrolls");
  for (const root of roots) {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode.data.trim(), parent = walker.currentNode.parentElement;
      if (!text || parent.closest("style, script, option") || !seen(parent)) continue;
      const size = parseFloat(getComputedStyle(parent).fontSize) * scale;
      if (size < least - 0.1) faults.push(`${size} px: ${text}`);
      const range = document.createRange();
      range.selectNodeContents(parent);
      const box = range.getBoundingClientRect();
      if (box.width && (box.left < -1 || box.top < -1 || box.right > innerWidth + 1 || box.bottom > innerHeight + 1))
        faults.push(`beyond the edge: ${text}`);
    }
    for (const control of root.querySelectorAll("input, select, textarea, button"))
      if (seen(control) && parseFloat(getComputedStyle(control).fontSize) * scale < least - 0.1)
        faults.push(`small letters in ${control.outerHTML}`);
  }
  const boxes = ".stage-row, .stage-card, .stage-box, .stage-numbers div, .stage-chips, .stage-panel";
  for (const box of screen.querySelectorAll(boxes))
    if (box.scrollWidth > box.clientWidth + 2 || box.scrollHeight > box.clientHeight + 2)
      faults.push(`cut off: ${box.className} ${box.textContent.slice(0, 60)}`);
  for (const chart of screen.querySelectorAll(".js-plotly-plot")) {
    const written = (one) => one.textContent.trim() && seen(one) && !one.closest(".hoverlayer");
    const texts = [...chart.querySelectorAll("text")].filter(written);
    const boxes = texts.map((one) => one.getBoundingClientRect());
    const edge = chart.getBoundingClientRect();
    texts.forEach((one, i) => {
      if (boxes[i].right > edge.right + 2 || boxes[i].left < edge.left - 2 || boxes[i].bottom > edge.bottom + 2)
        faults.push(`out of its chart: ${one.textContent}`);
      for (let j = 0; j < i; j++) {
        if (one.closest(".xtick") && texts[j].closest(".xtick")) continue;  // slanted: only their boxes meet
        const wide = Math.min(boxes[i].right, boxes[j].right) - Math.max(boxes[i].left, boxes[j].left);
        const high = Math.min(boxes[i].bottom, boxes[j].bottom) - Math.max(boxes[i].top, boxes[j].top);
        if (wide > 3 && high > 7 * scale)
          faults.push(`written over each other: ${one.textContent} | ${texts[j].textContent}`);
      }
    });
  }
  return faults;
}
"""


@pytest.fixture(scope="module")
def demo(browser):
    """The page, what went wrong on it, and its port; the page is opened once, for its panels take time to be built."""
    port = free_port()
    command = [sys.executable, "-m", "tlkit", "demo", "--no-browser", f"--port={port}", f"--token={TOKEN}"]
    with served(command, f"http://localhost:{port}"):
        page, wrong = opened(browser, f"http://localhost:{port}/?token={TOKEN}", TOLD)
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
    """Go to a panel and wait until it is built."""
    page.keyboard.press("Escape")
    page.keyboard.press(str(number))
    screen = page.locator(".screen.now")
    screen.locator(".stage-ready").wait_for()
    screen.locator(".stage-status").wait_for(state="detached")
    return screen


def figure(screen, number: int = 0) -> dict:
    """What a chart of a panel shows, as plotly has it."""
    chart = screen.locator(".js-plotly-plot").nth(number)
    return json.loads(chart.evaluate("(place) => JSON.stringify({ data: place.data, layout: place.layout })"))


def becomes(page, screen, condition: str, number: int = 0) -> dict:
    """Wait until a chart of a panel fulfils a condition on `data` and `layout`, in JavaScript."""
    chart = screen.locator(".js-plotly-plot").nth(number).element_handle()
    page.wait_for_function(f"({{ data, layout }}) => {condition}", arg=chart)
    return figure(screen, number)


def test_the_page_says_what_it_does_until_the_first_panel_can_be_used(demo):
    page, _, _ = demo
    told = page.evaluate("told")
    assert told[0] == "Starting Python …"
    assert "Connecting the page with Python …" in told
    assert page.locator(".screen").count() == PANELS and page.locator(".screen.now").count() == 1
    assert page.locator(".screen.now .js-plotly-plot").count() == 2


@pytest.mark.parametrize("size", SIZES)
def test_every_panel_is_legible_and_within_its_screen(demo, size):
    page, _, _ = demo
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    for number in range(1, PANELS + 1):
        screen = panel(page, number)
        if number == 5:
            page.keyboard.press(" ")
            becomes(page, screen, "data[0].y.length > 10")
        page.wait_for_timeout(150)
        kept(page, f"demo_{number}_{size}")
        shown = page.locator("#rendered_cells").bounding_box()
        assert (round(shown["width"]), round(shown["height"])) == (width, height), "the whole screen"
        assert page.evaluate(f"({FAULTS})", [LETTERS, screen.element_handle()]) == [], number
        if number == 5:
            screen.get_by_role("button", name="Back").click()
    panel(page, 1)  # a mouse finds the cell that it points at on an enlarged page, too
    heat = page.locator(".screen.now .js-plotly-plot").first.locator(".nsewdrag").bounding_box()
    page.mouse.move(heat["x"] + 0.05 * heat["width"], heat["y"] + 0.95 * heat["height"])
    page.mouse.move(heat["x"] + 0.06 * heat["width"], heat["y"] + 0.95 * heat["height"])
    page.locator(".screen.now .hoverlayer text").first.wait_for()
    said = page.locator(".screen.now .hoverlayer text").first.text_content()
    assert said.startswith("‘er’ looks at ‘In’"), said
    page.mouse.move(5, 5)


def test_planted_faults_are_found(demo):
    page, _, _ = demo
    screen = panel(page, 2)
    handle = screen.element_handle()
    planted = {
        "16 px: planted": '<p class="planted" style="font-size:16px">planted</p>',
        "beyond the edge: planted": '<p class="planted" style="position:fixed;left:1250px;font-size:1em">planted</p>',
    }
    for fault, markup in planted.items():
        handle.evaluate("(place, markup) => place.insertAdjacentHTML('beforeend', markup)", markup)
        assert fault in page.evaluate(f"({FAULTS})", [LETTERS, handle])
        page.evaluate("document.querySelector('.planted').remove()")
    assert page.evaluate(f"({FAULTS})", [LETTERS, handle]) == []


def test_keys_turn_panels_and_leave_controls_alone(demo):
    page, _, _ = demo
    for key, expected in (
        ("ArrowRight", 2),
        ("PageDown", 3),
        ("PageUp", 2),
        ("ArrowLeft", 1),
        ("6", 6),
        ("End", 6),
        ("PageDown", 6),
    ):
        page.keyboard.press(key)
        assert now(page) == expected, key
    screen = panel(page, 1)
    text = screen.get_by_label("Text")
    text.click()
    page.keyboard.press("End")
    page.keyboard.type(" n2")
    page.keyboard.press("ArrowLeft")
    assert now(page) == 1 and text.input_value().endswith(" n2") and not page.locator("#notes.open").count()
    text.fill("In Rust, the borrow checker")
    handle = screen.get_by_role("slider").first
    handle.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert now(page) == 1 and int(float(handle.get_attribute("aria-valuenow"))) == 2
    page.keyboard.press("PageDown")
    page.keyboard.press("Home")
    assert now(page) == 1 and int(float(handle.get_attribute("aria-valuenow"))) == 0
    page.keyboard.press("Escape")
    page.keyboard.press("PageDown")
    assert now(page) == 2
    screen = panel(page, 2)
    screen.get_by_label("Model").focus()
    page.keyboard.press("2")
    page.keyboard.press("n")
    assert now(page) == 2 and not page.locator("#notes.open").count()


def test_notes_are_hidden_until_their_key_and_each_panel_has_some(demo):
    page, _, _ = demo
    notes = page.locator("#notes")
    for number in range(1, PANELS + 1):
        screen = panel(page, number)
        assert screen.locator("h2").text_content().endswith("?"), "the title is a question for the room"
        assert not notes.is_visible() and not screen.locator(".celltag_panel p").first.is_visible()
        page.keyboard.press("n")
        assert notes.is_visible()
        sentences = notes.text_content().count(". ") + 1
        assert 2 <= sentences <= 4, number
        page.keyboard.press("n")
    assert not notes.is_visible()


def test_inside_attention_follows_block_and_head_and_the_text(demo):
    page, _, _ = demo
    screen = panel(page, 1)
    screen.get_by_label("Text").fill("In Rust, the borrow checker")
    first = becomes(page, screen, "layout.yaxis.ticktext.length === 10")
    screen.get_by_role("slider").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    second = becomes(page, screen, "layout.title.text.startsWith('Block 1')")
    assert first["data"][0]["z"] != second["data"][0]["z"]
    assert all(abs(sum(filter(None, row)) - 1) < 1e-4 for row in second["data"][0]["z"]), "each row is shared out"
    longest = "The first argument is the name of the file, and the second argument is the name of the"
    screen.get_by_label("or").select_option(longest)
    screen.get_by_text("19 tokens").wait_for()
    assert page.evaluate(f"({FAULTS})", [LETTERS, screen.element_handle()]) == []
    screen.get_by_label("or").select_option("If the file does not exist, an")
    bars = becomes(page, screen, "layout.yaxis.ticktext[0] === '‘·error’'", 1)
    assert 30 < bars["data"][0]["x"][0] < 45
    assert screen.locator(".stage-chip").count() == 8
    screen.get_by_label("Text").fill("A text that nobody recorded")  # the model is loaded now
    becomes(page, screen, "layout.yaxis.ticktext.includes('·record')")
    screen.get_by_label("Text").fill("")
    screen.get_by_text("the text is empty").wait_for()
    screen.get_by_label("Text").fill("In Rust, the borrow checker")
    screen.get_by_text("10 tokens").wait_for()


def test_strategies_counts_follow_the_strategy(demo):
    page, _, _ = demo
    screen = panel(page, 2)
    for strategy in ("freeze_embeddings", "last_layers"):
        screen.get_by_role("button", name=strategy, exact=True).click()
        trained = strategy_report("tiny", strategy).trainable_values
        screen.get_by_text(f"{trained:,}", exact=True).wait_for()
        assert screen.locator(".stage-box.spared").first.inner_text() == "embedding", "no gradient gets there"
    screen.get_by_role("button", name="lora", exact=True).click()
    screen.get_by_text("221,184", exact=True).wait_for()
    assert screen.locator(".stage-adapter").count() == 8
    screen.get_by_role("button", name="full", exact=True).click()
    screen.get_by_text("15.40 MiB", exact=True).wait_for()


def test_race_draws_two_curves_names_divergence_and_stops(demo):
    page, _, _ = demo
    screen = panel(page, 3)
    screen.get_by_label("Rate").nth(1).select_option("10 x recorded")
    screen.get_by_label("Epochs").select_option("1")
    page.keyboard.press("Escape")
    before = becomes(page, screen, "layout.xaxis.range[1] < 20")["layout"]
    page.keyboard.press(" ")
    shown = becomes(page, screen, "data.length === 2 && data[0].x.length > 3")
    screen.get_by_role("button", name="Stop").click()
    screen.get_by_text("Stopped at step").wait_for()
    said = screen.get_by_text("Stopped at step").inner_text()
    assert "lora, rate 0.1 diverged at step" in said and "full, rate 0.001" in said
    assert [run["name"] for run in shown["data"]] == ["full, rate 0.001", "lora, rate 0.1"]
    assert shown["layout"]["xaxis"]["range"] == before["xaxis"]["range"], "the axes stay where they were"
    assert shown["layout"]["yaxis"]["range"] == before["yaxis"]["range"]
    assert any("diverged" in note["text"] for note in figure(screen)["layout"]["annotations"])
    assert any("untouched model" in note["text"] for note in before["annotations"])
    kept(page, "demo_race_diverged")
    screen.get_by_label("Rate").nth(1).select_option("recorded")
    page.keyboard.press("Escape")
    page.keyboard.press(" ")
    again = becomes(page, screen, "data.length === 4 && data[3].x.length > 3")
    assert [run["opacity"] for run in again["data"]] == [0.3, 0.3, 1, 1], "runs before are pale"
    screen.get_by_role("button", name="Stop").click()
    screen.get_by_text("one seed each").wait_for()


def test_fitting_bar_is_over_the_limit_and_under_it(demo):
    page, _, _ = demo
    screen = panel(page, 4)

    def bar_and_limit() -> tuple[float, float]:
        shown = figure(screen)
        return sum(kind["x"][0] for kind in shown["data"]), shown["layout"]["shapes"][0]["x0"]

    bar, limit = bar_and_limit()
    assert bar > limit and screen.get_by_text("It does not fit").is_visible()
    screen.get_by_role("button", name="Weights in bf16").click()
    becomes(page, screen, f"data.reduce((sum, kind) => sum + kind.x[0], 0) < {0.7 * bar}")
    page.keyboard.press("Escape")
    page.keyboard.press(" ")
    screen.get_by_text("It fits").wait_for()
    bar, limit = bar_and_limit()
    assert bar <= limit
    screen.get_by_label("Model").select_option("llama2-7b")
    screen.get_by_text("It does not fit").wait_for()
    assert screen.get_by_text("No setting on this page").is_visible() or screen.get_by_text("It would fit").is_visible()


def test_ladder_goes_on_and_back_with_its_limit_from_the_start(demo):
    page, _, _ = demo
    screen = panel(page, 5)
    start = becomes(page, screen, "data[0].y.length === 2")
    assert any("limit of the card: 48 MiB" in note["text"] for note in start["layout"]["annotations"])
    assert len(start["data"]) == 6 and start["layout"]["showlegend"]
    tops = []
    for number in range(1, 7):
        page.keyboard.press(" ")
        screen.get_by_text(f"Attempt {number} of 6").wait_for()
        shown = becomes(page, screen, "data[0].y.length > 10")
        assert shown["layout"]["yaxis"]["range"] == start["layout"]["yaxis"]["range"]
        page.wait_for_timeout(100)
        tops.append(max(map(sum, zip(*(kind["y"] for kind in figure(screen)["data"]), strict=True))))
    assert all(top > 48 for top in tops[:-1]) and tops[-1] < 48
    assert "it holds" in screen.get_by_text("Attempt 6 of 6").inner_text()
    kept(page, "demo_ladder_holds")
    screen.get_by_role("button", name="Back").click()
    screen.get_by_text("Attempt 5 of 6").wait_for()


def test_real_model_shows_both_answers_at_once(demo):
    page, _, _ = demo
    screen = panel(page, 6)
    cards = screen.locator(".stage-card")
    first = cards.all_inner_texts()
    assert len(first) == 2 and first[0].startswith("Before") and first[1].startswith("After") and first[0] != first[1]
    assert screen.get_by_text("answers that end by themselves").is_visible()
    page.keyboard.press(" ")
    screen.get_by_text("If I move a `Vec`", exact=False).nth(1).wait_for()
    assert cards.all_inner_texts() != first


def test_no_errors_no_other_server_no_code_and_a_token(demo, browser):
    page, wrong, port = demo
    assert wrong == []
    stranger = browser.new_context().new_page()
    stranger.goto(f"http://localhost:{port}/")
    assert "login" in stranger.url
    assert not page.locator(".jp-InputArea-editor, .CodeMirror").count()
