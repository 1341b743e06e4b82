"""The questions of the workbook can be answered by knowledge alone, and a model's choice is the one it should be."""

import json
from collections import Counter
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from peft import PromptTuningConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import ModelOutput

from tlkit.cli import main
from tlkit.corpus import load_corpus
from tlkit.evidence.questions import Answers, Question, answer_questions, encode_question, load_questions, spread_out
from tlkit.evidence.tasks import TASKS
from tlkit.models import BUNDLED, load_model, save_model
from tlkit.settings import DATA, PROFILES, Profile
from tlkit.strategies import apply_strategy

SETS = {"rust": 240, "general": 120}  # and how many questions each has at least
FEW = (
    Question("a", "colours", "What colour is snow?", ("Green", "White as can be", "Red", "Blue"), 1),
    Question("b", "numbers", "How many legs has a cat?", ("Four", "Two", "Six legs in all", "None"), 0),
    Question("c", "numbers", "Which number is even?", ("Seven", "Three", "Eleven", "One hundred and four"), 3),
    Question("d", "colours", "Which colour has the sky?", ("Black at noon", "Grass green", "Blue", "Pink"), 2),
)
SIZES = dict(hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2)
# The ways there are to know a token's place and to look back.
FAMILIES = {
    "qwen2": SIZES,
    "gpt2": dict(n_embd=32, n_head=4, n_layer=2),  # places are learned
    "bloom": dict(hidden_size=32, n_layer=2, n_head=4),  # places are distances
    "mistral": SIZES | {"sliding_window": 8},  # forgets the beginning of the question
    "mamba": dict(hidden_size=32, num_hidden_layers=2),  # no attention at all
}


@cache
def of_set(name: str) -> tuple[Question, ...]:
    return load_questions(name)


def words(text: str) -> list[str]:
    """In small letters, code in one piece, without the marks around them."""
    return [word for part in text.lower().split() if (word := part.strip("`.,;:?!()\"'…"))]


def runs(text: str, length: int) -> set[tuple[str, ...]]:
    found = words(text)
    return {tuple(found[begin : begin + length]) for begin in range(len(found) - length + 1)}


def passages() -> list[dict]:
    lines = [(DATA / "rust" / f"{split}.jsonl").read_text().splitlines() for split in ("train", "validation", "test")]
    return [json.loads(line) for split in lines for line in split]


def expected_share(questions: tuple[Question, ...], measure) -> float:
    """Of right answers, for one who takes the option with the highest measure; equals are drawn by lot."""
    share = 0.0
    for asked in questions:
        values = [measure(asked, option) for option in asked.options]
        best = [place for place, value in enumerate(values) if value == max(values)]
        share += (asked.answer in best) / len(best)
    return share / len(questions)


@pytest.mark.parametrize("name", SETS)
def test_the_form_of_a_question_does_not_give_its_answer_away(name):
    """Place, length, and the question's own words: each says as little as a guess."""
    questions = of_set(name)
    places = Counter(asked.answer for asked in questions)
    assert all(0.20 <= places[place] / len(questions) <= 0.30 for place in range(4)), places
    shapes = {
        "the longest": lambda _, option: len(option),
        "the shortest": lambda _, option: -len(option),
        "the most words": lambda _, option: len(option.split()),
        "the fewest words": lambda _, option: -len(option.split()),
    }
    shares = {shape: expected_share(questions, measure) for shape, measure in shapes.items()}
    assert all(0.15 <= share <= 0.35 for share in shares.values()), shares
    echoes = {
        "most of the question's words": lambda asked, option: len({*words(option)} & {*words(asked.question)}),
        "fewest of them": lambda asked, option: -len({*words(option)} & {*words(asked.question)}),
        "most code": lambda _, option: option.count("`"),
    }
    shares = {shape: expected_share(questions, measure) for shape, measure in echoes.items()}
    assert all(share <= 0.35 for share in shares.values()), shares
    ratios = [len(one.options[one.answer]) / (sum(map(len, one.options)) / 4) for one in questions]
    assert 0.95 <= np.mean(ratios) <= 1.05


def test_questions_on_rust_can_be_answered_from_training_passages_and_are_not_worded_like_any():
    train = {json.loads(line)["id"] for line in (DATA / "rust" / "train.jsonl").read_text().splitlines()}
    known = set().union(*(runs(passage["text"], 6) for passage in passages()))
    known |= set().union(*(runs(fact, 6) for fact in load_corpus("facts").train))
    for asked in of_set("rust"):
        assert asked.passage in train, asked.id
        shared = set().union(*(runs(text, 6) for text in (asked.question, *asked.options))) & known
        assert not shared, (asked.id, shared)
    assert all(asked.passage is None for asked in of_set("general"))


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def small(kind: str = "qwen2", **more) -> torch.nn.Module:
    tokens = dict(vocab_size=4096, pad_token_id=0, bos_token_id=0, eos_token_id=0)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **tokens | FAMILIES[kind] | more))


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(BUNDLED)


def planted(tokenizer, questions, chances) -> torch.nn.Module:
    """A model that was told with which chance each token of each option follows, and knows nothing else.

    `chances` has for each option of a question the chance of its tokens.
    """
    model, known = small(), {}
    for asked, of_options in zip(questions, chances, strict=True):
        opening = [tokenizer.eos_token_id, *ids_of(tokenizer, asked.prompt)]
        for option, chance in zip(asked.options, of_options, strict=True):
            row = opening + ids_of(tokenizer, f" {option}")
            for place in range(len(opening), len(row)):
                told = known.setdefault(tuple(row[:place]), {})
                told[row[place]] = max(chance, told.get(row[place], 0))  # of two options that begin alike

    def forward(input_ids, logits_to_keep, **_):
        logits = torch.zeros(*input_ids.shape, 4096)
        for row, ids in enumerate(input_ids.tolist()):
            for place in range(len(ids)):
                told = known.get(tuple(ids[: place + 1]), {})
                rest = (1 - sum(told.values())) / (4096 - len(told))  # the chance of any other token
                for token, chance in told.items():
                    logits[row, place, token] = float(np.log(chance / rest))
        return ModelOutput(logits=logits[:, -logits_to_keep:])

    model.forward = forward
    return model


def knowing(questions, right: float = 0.2, wrong: float = 0.1) -> list[list[float]]:
    return [[right if place == one.answer else wrong for place in range(4)] for one in questions]


def test_a_model_that_knows_the_answers_has_them_all_and_one_that_knows_better_has_none(tokenizer):
    answers = answer_questions(planted(tokenizer, FEW, knowing(FEW)), tokenizer, FEW)
    assert answers.accuracy == 1 and answers.chosen == (1, 0, 3, 2)
    against = answer_questions(planted(tokenizer, FEW, knowing(FEW, 0.1, 0.2)), tokenizer, FEW)
    assert against.accuracy == 0
    assert np.exp(answers.scores[0]) == pytest.approx([0.1, 0.2, 0.1, 0.1], rel=1e-5)  # of fp32


def test_an_option_is_not_judged_by_its_length(tokenizer):
    """Each token of the long, right option is likelier; their product is far smaller than that of a short one."""
    asked = Question("long", "x", "Why?", ("One", "Two", "It is what every single one of us has wished for", "Six"), 2)
    model = planted(tokenizer, [asked], knowing([asked], 0.12, 0.1))
    answers = answer_questions(model, tokenizer, [asked])
    tokens = [len(ids_of(tokenizer, f" {option}")) for option in asked.options]
    sums = [score * count for score, count in zip(answers.scores[0], tokens, strict=True)]
    assert answers.chosen == (2,) and sums[2] == min(sums)


@torch.no_grad()
def one_at_a_time(model, tokenizer, asked: Question) -> list[float]:
    """Each option behind the prompt, alone: no padding, no cache, and all of the logits."""
    scores = []
    for option in asked.options:
        start = [tokenizer.eos_token_id, *ids_of(tokenizer, asked.prompt)]
        row = [tokenizer.eos_token_id, *ids_of(tokenizer, f"{asked.prompt} {option}")]
        logits = model(input_ids=torch.tensor([row])).logits[0].double().log_softmax(-1)
        nats = [logits[place - 1, row[place]].item() for place in range(len(start), len(row))]
        scores.append(sum(nats) / len(nats))
    return scores


@pytest.mark.parametrize("kind", FAMILIES)
def test_options_side_by_side_score_as_each_alone(kind, tokenizer):
    """Whatever the batch: fp32 rounds in the seventh digit, and scores are near 8."""
    model = small(kind).eval()
    alone = [one_at_a_time(model, tokenizer, asked) for asked in FEW]
    for batch_size in (1, 3):
        assert np.allclose(answer_questions(model, tokenizer, FEW, batch_size=batch_size).scores, alone, atol=1e-5)


@pytest.mark.parametrize("adapter", ["lora", "prompt"])
def test_an_adapter_answers_as_it_does_one_at_a_time(adapter, tokenizer):
    """Also one that learns a prompt: it would put its tokens between question and answer, too."""
    if adapter == "lora":
        model = apply_strategy(small(), "lora").model
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=0.1)
    else:
        model = get_peft_model(small(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))
    model.eval()
    skip = 3 if adapter == "prompt" else 0
    plain = answer_questions(model.get_base_model(), tokenizer, FEW)

    def without_the_prompts_own(**inputs):
        return SimpleNamespace(logits=model(**inputs).logits[:, skip:])

    alone = [one_at_a_time(without_the_prompts_own, tokenizer, asked) for asked in FEW]
    scores = answer_questions(model, tokenizer, FEW).scores
    assert np.allclose(scores, alone, atol=1e-5) and (adapter == "lora" or not np.allclose(scores, plain.scores))


def test_a_model_in_half_precision_is_scored_in_fp32(tokenizer):
    model = small().to(torch.bfloat16).eval()
    alone = [one_at_a_time(model, tokenizer, asked) for asked in FEW]
    # Its logits have two to three digits, and another batch rounds them in another way.
    assert np.allclose(answer_questions(model, tokenizer, FEW).scores, alone, atol=0.02)
    scores = np.array(answer_questions(model, tokenizer, FEW).scores)
    assert not np.array_equal(scores, torch.tensor(scores).bfloat16().double().numpy())


def test_scoring_leaves_the_model_as_it_was(tokenizer):
    model = small(attention_dropout=0.5)
    model.train()
    state = torch.random.get_rng_state()
    one, other = (answer_questions(model, tokenizer, FEW) for _ in range(2))
    assert one.scores == other.scores and model.training and torch.equal(state, torch.random.get_rng_state())


def trained_tokenizer(before, behind) -> PreTrainedTokenizerFast:
    """Pairs of bytes or letters of the questions themselves, 300 of them."""
    found = Tokenizer(models.BPE(unk_token="<unk>"))
    found.pre_tokenizer, found.decoder = before, behind
    texts = [f"{asked.prompt} {option}" for asked in FEW for option in asked.options] * 5
    found.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "</s>"]))
    return PreTrainedTokenizerFast(tokenizer_object=found, eos_token="</s>", unk_token="<unk>")


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        (pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()),  # GPT-2, Qwen, Llama 3
        (pre_tokenizers.Metaspace(prepend_scheme="first"), decoders.Metaspace()),  # Llama 2: a space before each text
        (pre_tokenizers.Split("\n", "isolated"), decoders.Fuse()),  # tokens reach across spaces: ": " is one
    ],
)
def test_whatever_the_tokenizer_no_token_is_of_question_and_answer(before, behind):
    tokenizer = trained_tokenizer(before, behind)
    for asked in FEW:
        prompt, options = encode_question(tokenizer, asked)
        assert prompt == [tokenizer.eos_token_id, *ids_of(tokenizer, asked.prompt)]
        for option, ids in zip(asked.options, options, strict=True):
            assert tokenizer.decode(prompt[1:] + ids) == f"{asked.prompt} {option}"
            assert tokenizer.decode(ids).strip() == option


def test_what_cannot_be_asked_is_refused_by_its_id(tokenizer):
    model = small(max_position_embeddings=16)
    with pytest.raises(ValueError, match=r"question 'a' has \d\d tokens .* reads at most 16: ask"):
        answer_questions(model, tokenizer, FEW)
    with pytest.raises(ValueError, match="no questions"):
        answer_questions(model, tokenizer, [])


def test_a_score_that_is_not_a_number_is_no_choice():
    nan = float("nan")
    answers = Answers(FEW[:2], ((nan, -1.0, -2.0, -3.0), (nan, nan, nan, nan)))
    assert answers.chosen == (-1, -1) and answers.accuracy == 0


def answered(*right: bool) -> Answers:
    """Questions of which these are answered rightly, and the others by the wrong option beside."""
    questions = tuple(Question(str(place), "x", "Is it?", ("a", "b", "c", "d"), 0) for place in range(len(right)))
    return Answers(questions, tuple((1.0, 0.0, 0.0, 0.0) if one else (0.0, 1.0, 0.0, 0.0) for one in right))


def test_the_interval_of_an_accuracy_is_wilsons():
    low, high = answered(*[True] * 10 + [False] * 20).interval
    assert low == pytest.approx(0.1923, abs=1e-4) and high == pytest.approx(0.5122, abs=1e-4)  # Wilson's, by hand


LINE = {"id": "q1", "subject": "x", "question": "Which?", "options": ["a", "b", "c", "d"], "answer": 1, "passage": None}


@pytest.mark.parametrize(
    "change",
    [
        {"options": ["a", "b", "c"]},
        {"options": ["a", "b", "c", "a "]},
        {"answer": 4},
        {"answer": True},
        {"question": " "},
        {"id": "q0"},
    ],
)
def test_a_file_that_cannot_be_asked_is_refused_by_line(tmp_path, change):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in (LINE | {"id": "q0"}, LINE | change)))
    with pytest.raises(ValueError, match=r'mine\.jsonl, line 2: expected an "id" of its own'):
        load_questions(path)


def test_what_is_no_file_of_questions_is_refused(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("")
    with pytest.raises(ValueError, match="no questions in this file"):
        load_questions(path)
    with pytest.raises(ValueError, match="questions 'python': expected rust, general, or a path"):
        load_questions("python")
    path.write_text("\ufeff" + json.dumps(LINE | {"options": [" a", "b ", "c", "d"]}) + "\n\n")
    assert load_questions(path)[0].options == ("a", "b", "c", "d")


def test_few_questions_are_taken_from_all_of_a_file():
    assert spread_out(range(10), 4) == (0, 2, 5, 7)
    assert spread_out(range(3), None) == spread_out(range(3), 9) == (0, 1, 2)


def test_evaluate_answers_questions_beside_perplexity_also_with_an_adapter(tmp_path, capsys, monkeypatch, small_model):
    """The share that is right, on the command line, is the one counted here."""
    asked = [LINE | {"id": one.id, "question": one.question, "options": one.options, "answer": 2} for one in FEW]
    (tmp_path / "few.jsonl").write_text("\n".join(map(json.dumps, asked)))
    loaded = load_model(small_model)
    report = apply_strategy(loaded.model, "lora")
    torch.nn.init.normal_(next(p for name, p in report.model.named_parameters() if "lora_B" in name))
    save_model(report.model, loaded.tokenizer, tmp_path / "adapter")
    by_hand = answer_questions(report.model, loaded.tokenizer, load_questions(tmp_path / "few.jsonl"))
    monkeypatch.setitem(PROFILES, "test", Profile("test", 2, 2, 1, 1))
    command = ["evaluate", "--profile", "test", "--model", str(tmp_path / "adapter")]
    command += ["--questions", str(tmp_path / "few.jsonl")]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["perplexity"] > 1 and found["questions"]["accuracy"] == by_hand.accuracy
    assert [row["chosen"] for row in found["questions"]["answers"]] == list(by_hand.chosen)
    assert main(command) == 0
    assert f"{sum(by_hand.correct)} of 4 questions right: " in capsys.readouterr().out
    assert main([*command[:5], "--questions", "python"]) == 2
    assert "questions 'python': expected rust, general, or a path" in capsys.readouterr().err

    def scored(*_):
        pytest.fail("scored before the questions were looked at")

    (tmp_path / "long.jsonl").write_text(json.dumps(asked[0] | {"question": "longer " * 3000}))
    monkeypatch.setattr(TASKS["text"], "score", scored)
    assert main([*command[:5], "--questions", str(tmp_path / "long.jsonl")]) == 2
    assert "reads at most" in capsys.readouterr().err
