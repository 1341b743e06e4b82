"""Four-option questions: what a model knows, which perplexity does not say.

An option's score is its mean log-probability per token behind the question. The mean, not the sum: a longer option
would have the lower sum whatever it says.
"""

import hashlib
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import torch
from scipy.stats import binomtest
from torch.nn import functional

from tlkit.corpus import document_opening, read_rows
from tlkit.evaluation import LOGITS_AT_ONCE
from tlkit.examples import IGNORED, padded
from tlkit.examples.answers import end_tokens, parts_of
from tlkit.examples.conversations import Conversation
from tlkit.jobs import SILENT, Part
from tlkit.models.parts import evaluation_mode, longest_input
from tlkit.names import CHANCE, OPTIONS, QUESTION_SETS
from tlkit.settings import DATA


@dataclass(frozen=True)
class Question:
    """A question with four options, of which one is right."""

    id: str
    subject: str
    question: str
    options: tuple[str, ...]
    answer: int  # place of the right option, from 0
    passage: str | None = None  # training passage from which it can be answered

    @property
    def prompt(self) -> str:
        """What the model reads before each option."""
        return f"Question: {self.question}\nAnswer:"


@dataclass(frozen=True)
class Answers:
    """Questions as they were asked, and for each the mean log-probability per token of each option, in nats."""

    questions: tuple[Question, ...]
    scores: tuple[tuple[float, ...], ...]

    @cached_property
    def chosen(self) -> tuple[int, ...]:
        """Of each question the place of the option with the highest score; -1 where a score is not a number."""
        return tuple(-1 if any(s != s for s in row) else row.index(max(row)) for row in self.scores)

    @cached_property
    def correct(self) -> tuple[bool, ...]:
        """Of each question whether the right option was chosen."""
        return tuple(place == asked.answer for place, asked in zip(self.chosen, self.questions, strict=True))

    @property
    def accuracy(self) -> float:
        """Share of the questions that were answered rightly; `CHANCE` for one who guesses."""
        return sum(self.correct) / len(self.correct)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval of the accuracy, had other questions been asked."""
        interval = binomtest(sum(self.correct), len(self.correct)).proportion_ci(0.95, "wilson")
        return float(interval.low), float(interval.high)

    def __str__(self) -> str:
        low, high = self.interval
        right = f"{sum(self.correct)} of {len(self.questions)} questions right"
        return f"{right}: {self.accuracy:.1%} [{low:.1%}, {high:.1%}], chance {CHANCE:.0%}"


def load_questions(name: str | Path) -> tuple[Question, ...]:
    """Read questions, each an object on a line, and refuse a file in which one could not be scored.

    Args:
        name: `rust`, `general`, or a path to a .jsonl file with the fields of `Question`.

    Raises:
        FileNotFoundError: where there is no such file.
        ValueError: naming file and line, for what is not a question, or an id that is there twice.
    """
    path = DATA / "questions" / f"{name}.jsonl" if name in QUESTION_SETS else Path(name)
    if path.suffix.lower() != ".jsonl":
        raise ValueError(f"questions {str(name)!r}: expected {', '.join(QUESTION_SETS)}, or a path to a .jsonl file")
    questions: dict[str, Question] = {}
    for where, row in read_rows(path, [field.name for field in fields(Question)]):
        question = _question(row)
        if question is None or question.id in questions:
            raise ValueError(
                f'{where}: expected an "id" of its own, "subject", "question", "options" ({OPTIONS} '
                f'different texts) and "answer" (a place from 0 to {OPTIONS - 1}), and it is {reprlib.repr(row)}'
            )
        questions[question.id] = question
    if not questions:
        raise ValueError(f"{path}: no questions in this file")
    return tuple(questions.values())


def _question(row: dict) -> Question | None:
    """The question of a line, without white space around its texts; None where it is none."""
    options, answer = row.get("options"), row.get("answer")
    if not isinstance(options, list) or type(answer) is not int or answer not in range(OPTIONS):
        return None
    texts = [row.get("id"), row.get("subject"), row.get("question"), *options]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        return None
    name, subject, question, *options = (text.strip() for text in texts)
    if not len(options) == len(set(options)) == OPTIONS:
        return None
    return Question(name, subject, question, tuple(options), answer, row.get("passage"))


def questions_sha256(questions: Sequence[Question]) -> str:
    """Hash of all that decides how questions are answered and judged, to name them in a result."""
    digest = hashlib.sha256()
    for asked in questions:
        digest.update("\0".join([asked.id, asked.question, *asked.options, str(asked.answer), ""]).encode())
    return digest.hexdigest()


def spread_out(questions: Sequence[Question], most: int | None) -> tuple[Question, ...]:
    """Choose at most so many questions at equal distances, because the files are ordered by subject; None: all."""
    count = len(questions) if most is None else min(most, len(questions))
    return tuple(questions[place * len(questions) // count] for place in range(count))


def answer_questions(
    model: torch.nn.Module,
    tokenizer,
    questions: Sequence[Question],
    *,
    in_chat: bool = False,
    batch_size: int = 8,
    progress: Part = SILENT,
) -> Answers:
    """Score every option: its mean log-probability per token, in fp32, behind the question.

    The model reads what opens every document, then "Question: …", a line break, "Answer:" and the option.

    Args:
        in_chat: put each question as a message of a user, in the model's chat template.
        batch_size: questions at once, fewer where the vocabulary is large.

    Raises:
        ValueError: for no questions, or one that is longer than the model reads, by its id.

    Source: Brown et al. 2020, Language Models are Few-Shot Learners, section 2.4 (options scored per token).
    """
    encoded = encode_questions(model, tokenizer, questions, in_chat=in_chat)
    longest = max(len(option) for _, options in encoded for option in options)
    vocabulary = model.config.get_text_config().vocab_size
    at_once = max(1, min(batch_size, LOGITS_AT_ONCE // (OPTIONS * longest * vocabulary)))
    scores: dict[int, tuple[float, ...]] = {}
    by_length: dict[int, list[int]] = {}  # questions whose prompts have as many tokens, so that none is padded
    for place, (prompt, _) in enumerate(encoded):
        by_length.setdefault(len(prompt), []).append(place)
    batches = [places[at : at + at_once] for places in by_length.values() for at in range(0, len(places), at_once)]
    with evaluation_mode(model):
        for places in batches:
            progress.step(len(scores), len(encoded), f"question {len(scores) + 1} of {len(encoded)}")
            prompts = torch.tensor([encoded[place][0] for place in places])
            options = [option for place in places for option in encoded[place][1]]
            rows = _scores(model, prompts, options).view(-1, OPTIONS).tolist()
            scores |= {place: tuple(row) for place, row in zip(places, rows, strict=True)}
    return Answers(tuple(questions), tuple(scores[place] for place in range(len(encoded))))


def encode_questions(
    model: torch.nn.Module, tokenizer, questions: Sequence[Question], *, in_chat: bool = False
) -> list[tuple[list[int], list[list[int]]]]:
    """Token ids of each question's prompt and of its options; refuses what a model cannot be asked."""
    if not questions:
        raise ValueError("no questions to answer")
    limit, encode = longest_input(model), encode_in_chat if in_chat else encode_question
    encoded = []
    for question in questions:
        prompt, options = encode(tokenizer, question)
        length = len(prompt) + max(map(len, options))
        if limit and length > limit:
            raise ValueError(
                f"question {question.id!r} has {length} tokens with its longest option, and this model reads at most "
                f"{limit}: ask shorter ones, or none (in compare: --questions 0)"
            )
        encoded.append((prompt, options))
    return encoded


def encode_question(tokenizer, question: Question) -> tuple[list[int], list[list[int]]]:
    """Tokenise a question and its options, each behind the prompt, as it stands in running text.

    Alone, some tokenizers would put a second space before it. Where a token would reach across the border, the option
    is tokenised by itself.
    """

    def ids(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]

    prompt, options = ids(question.prompt), []
    for option in question.options:
        whole = ids(f"{question.prompt} {option}")
        options.append(whole[len(prompt) :] if whole[: len(prompt)] == prompt else ids(f" {option}"))
    return document_opening(tokenizer) + prompt, options


def encode_in_chat(tokenizer, question: Question) -> tuple[list[int], list[list[int]]]:
    """Tokenise a question as a message, and its options as answers to it, without the end token."""
    ends, prompt, options = end_tokens(tokenizer), [], []
    for option in question.options:
        asked = Conversation(question.id, (("user", question.question), ("assistant", option)))
        (prompt, _), (answer, _), _ = parts_of(asked, tokenizer, ends)
        options.append([token for token in answer if token not in ends])
    return prompt, options


@torch.no_grad()
def _scores(model: torch.nn.Module, prompts: torch.Tensor, options: list[list[int]]) -> torch.Tensor:
    """Mean log-probability per token of every option, shape (options,); each prompt has four of them in turn."""
    device, prompts = next(model.parameters()).device, prompts.repeat_interleave(OPTIONS, 0)
    ids, labels = padded(options, 0), padded(options, IGNORED)  # no token sees those behind it
    rows = torch.cat([prompts, ids[:, :-1]], 1)
    seen = torch.cat([torch.ones_like(prompts), (labels[:, :-1] != IGNORED).long()], 1)
    read = model(
        input_ids=rows.to(device), attention_mask=seen.to(device), use_cache=False, logits_to_keep=labels.shape[1]
    )
    logits, targets = read.logits.float().flatten(0, 1), labels.flatten().to(device)
    nats = functional.cross_entropy(logits, targets, reduction="none", ignore_index=IGNORED)
    return -nats.view(labels.shape).cpu().double().sum(1) / (labels != IGNORED).sum(1)
