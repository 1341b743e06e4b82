"""Full fine-tuning: rows of old text among the new ones, against forgetting."""

from copy import deepcopy

import torch

import tlkit as tl
from course.exercises import Quiz, Wrong, called, exercise


def _losses(model, batches, texts):
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in batches:
        model(input_ids=batch, labels=batch).loss.backward()
        adamw.step()
        adamw.zero_grad()
    with torch.no_grad():
        return [float(model(input_ids=text[:16], labels=text[:16]).loss) for text in texts]


@exercise(
    "ex04_1",
    "the rows of four lists of batches, and then two short trainings",
    "If k old rows join n new ones, their share is k / (n + k). Solve this for k.",
    "`torch.randperm(len(old), generator=generator)[:k]` draws k different rows. Shuffle with the same generator.",
    mistakes={
        "a row is neither new nor old": lambda new, *_: (new + 1).split(4),
        "8 old rows are wanted, not 0": lambda new, *_: new.split(4),
        "four rows": lambda *a: torch.cat(a[:2])[:32].split(8),
        "shuffle all rows together": lambda *a: torch.cat(a[:2])[:32].split(4),
        "the seed alone": lambda *a: torch.cat(a[:2])[:32][torch.randperm(32)].split(4),
    },
)
def replay(answer: object) -> None:
    """Judge the rows; then train on them, and print what both languages gain or lose."""
    tl.setup()
    loaded = tl.load_model(tl.BUNDLED)
    (new, *rust), (old, *python) = (
        [tl.pack(texts, loaded.tokenizer, 64) for texts in (corpus.train, corpus.validation)]
        for corpus in map(tl.load_corpus, ("rust", "general"))
    )
    new = new[:24]
    of_new, of_old = ([*map(tuple, rows.tolist())] for rows in (new, old))

    def mixed(share, seed):
        batches = called(answer, new.clone(), old.clone(), share, seed)
        rows = [tuple(row) for batch in batches for row in batch.tolist()]
        news, count = [row for row in rows if row in of_new], round(24 * share / (1 - share))
        for fault, why in (
            ({*rows} - {*of_new, *of_old}, "a row is neither new nor old"),
            ({*of_new} - {*rows} or len({*rows}) < len(rows), "each new row has to come, and none twice"),
            (len(rows) - 24 != count, f"{count} old rows are wanted, not {len(rows) - 24}"),
            ({*map(len, batches[:-1])} != {4}, "each batch but the last has four rows"),
            (news == of_new or count and news == rows[:24], "shuffle all rows together"),
        ):
            if fault:
                raise Wrong(f"for the share {share:g}, {why}.")
        return batches, rows, news

    (batches, *first), (_, *again), (_, *other) = map(mixed, (0.25,) * 3, (0, 0, 1))
    if first != again or {*first[0]} == {*other[0]} or first[1] == other[1]:
        raise Wrong("the seed alone has to decide which old rows come, and the order of all.")
    for way, steps in (("before training", ()), ("without replay", mixed(0.0, 0)[0]), ("with replay", batches)):
        losses = _losses(deepcopy(loaded.model), steps, (*rust, *python))
        print("validation loss {}: Rust {:.2f}, Python {:.2f}".format(way, *losses))


QUIZ = Quiz(
    "quiz04",
    "After 20 epochs on 25 sentences the training loss is 0.1. What do you know about unseen text?",
    {
        "a": "The model now predicts all text better.",
        "b": "Nothing, until unseen text is scored.",
        "c": "The model is ruined for unseen text.",
    },
    {
        "a": "no: it has learned those sentences by heart. In this lesson the validation loss rose meanwhile.",
        "b": "yes: the training loss says something about the training text only.",
        "c": "it may be, and here it became worse. But this number does not show it, and the validation loss does.",
    },
    right="b",
)
