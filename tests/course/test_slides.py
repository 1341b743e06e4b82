"""Slides: nothing passes the edge of a projector, and no server is asked for anything."""

import pytest

from course.slides import write_slides

DECKS = ["02_inside_a_language_model", "15_comparison", "16_autopsy"]  # formulas, charts, long tables
MOST_THAT_SCROLL = 0.03  # of all slides: long code or a long table, which is drawn as small as may be
# For each slide, as it is shown: what reaches beyond the page to a side, and whether the rest is scrolled to.
LOOK = """async () => {
  await MathJax.startup.promise;
  const beyond = [], scrolled = [];
  const slides = Reveal.getSlides();
  for (const slide of slides) {
    const {h, v} = Reveal.getIndices(slide);
    Reveal.slide(h, v);
    const page = slide.getBoundingClientRect();
    if (page.left < -1 || page.right > innerWidth + 1 || page.top < -1 || page.bottom > innerHeight + 1)
      beyond.push(`the slide ${h}.${v} itself`);
    for (const part of slide.querySelectorAll("p, li, pre, img, table, h1, h2, mjx-container > svg")) {
      const box = part.getBoundingClientRect();
      if (box.width && (box.left < page.left || box.right > page.right + 1))
        beyond.push(`${h}.${v}: ${part.tagName} ${part.innerText}`);
    }
    if (slide.scrollHeight > slide.clientHeight + 1) scrolled.push(`${h}.${v}`);
  }
  return {slides: slides.length, beyond, scrolled};
}"""


@pytest.fixture(scope="module")
def decks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slides")
    assert [page.stem for page in write_slides(folder, DECKS)] == DECKS
    return folder


def test_nothing_passes_the_edge_of_a_projector_and_no_server_is_asked(decks, browser):
    page, wrong = browser.new_page(viewport={"width": 1280, "height": 720}), []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(("file:", "data:")) else None)
    slides, scrolled = 0, []
    for deck in DECKS:
        page.goto((decks / f"{deck}.html").as_uri())
        page.wait_for_function("window.Reveal && Reveal.isReady() && window.MathJax && MathJax.startup.promise")
        seen = page.evaluate(LOOK)
        assert seen["beyond"] == [], deck
        assert seen["slides"] > 20, deck
        slides += seen["slides"]
        scrolled += [f"{deck} {place}" for place in seen["scrolled"]]
    assert len(scrolled) <= MOST_THAT_SCROLL * slides, scrolled
    assert wrong == []
    page.close()
