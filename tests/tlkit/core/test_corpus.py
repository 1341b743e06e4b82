"""Text that readers bring, and the bundled one: what is read, what makes a document, nothing lost or counted twice."""

import copy
import json
import os
import re
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import processors

from tlkit.corpus import DATA, SPLITS, Corpus, load_corpus, pack, token_stream
from tlkit.evaluation import _windows

TEN = [f"Document number {number}." for number in range(10)]
# The same examples in every run; the folder of a test is made anew by each.
quick = settings(
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def documents(corpus):
    return [text for split in SPLITS for text in getattr(corpus, split)]


def test_the_bundled_corpora_stay_as_they_are():
    assert load_corpus("rust").sha256 == "2da1031650acff45d24af34df2b17345e1fdf150426a74b4880a97a86a6fba6e"
    assert load_corpus("facts").sha256 == "871eef603bd733857c10ceb63651f0fad3847f0be6072adcf12e3009bd6aabd3"
    assert load_corpus("general").sha256 == "1cc899f7f109aaa44ec3f67688e98eb0736ee06fd8558bf41b7a7dc9148632d4"


def test_repeated_documents_are_left_out_and_counted(tmp_path):
    """However their white space differs, and in whichever file they are."""
    for name, end in (("a.txt", "\n"), ("b.md", "\r\n")):
        (tmp_path / name).write_bytes(f"{end}{end}".join([*TEN, *TEN]).replace(" ", "  ").encode())
    rows = [json.dumps({"text": text.replace(" ", "\n")}) for text in [*TEN, "", " \n"]]
    (tmp_path / "c.jsonl").write_text("\n".join(rows))
    corpus = load_corpus(tmp_path)
    assert sorted(" ".join(text.split()) for text in documents(corpus)) == sorted(TEN)
    assert corpus.duplicates == 40 and corpus.limited(train=2).duplicates == 40
    (tmp_path / "few.txt").write_text("\n\n".join(TEN[:3] * 10))
    with pytest.raises(ValueError, match="few.txt: 3 documents, beside 27 that repeat them; at least 10 are needed"):
        load_corpus(tmp_path / "few.txt")


def test_a_corpus_with_a_document_in_two_splits_cannot_be_made():
    with pytest.raises(ValueError, match="mine: 'One  two.' is in train and in test"):
        Corpus("mine", ("One two.",), ("Three.",), ("One  two.",))


def test_a_folder_with_splits_of_its_own_keeps_them(tmp_path):
    splits = {"train": ["One.", "Two.", "One.", " "], "validation": ["Three."], "test": ["Four.", "Five."]}
    for split, texts in splits.items():
        (tmp_path / f"{split}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    corpus = load_corpus(tmp_path)
    assert [*map(documents, [corpus])] == [["One.", "Two.", "Three.", "Four.", "Five."]] and len(corpus.test) == 2
    assert (corpus.duplicates, corpus.empty) == (1, 1)
    (tmp_path / "test.jsonl").write_text(json.dumps({"text": "Two."}))
    with pytest.raises(ValueError, match="'Two.' is in train and in test"):
        load_corpus(tmp_path)
    (tmp_path / "test.jsonl").unlink()
    with pytest.raises(ValueError, match="train.jsonl is there, test not"):
        load_corpus(tmp_path)


# Few words and much white space, so that documents repeat and are empty.
texts = st.lists(st.text(alphabet="ab \n\t\u2028\u0085\ufeff", max_size=6), max_size=60)


@quick
@given(texts=texts)
@example(texts=["a"] * 30)
def test_splits_are_disjoint_complete_and_always_the_same(tmp_path, texts):
    path = tmp_path / "any.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts), encoding="utf-8")
    words = {" ".join(text.split()) for text in texts} - {""}
    if len(words) < 10:
        with pytest.raises(ValueError, match=f": {len(words)} documents"):
            load_corpus(path)
        return
    corpus = load_corpus(path)
    splits = [{" ".join(text.split()) for text in getattr(corpus, split)} for split in SPLITS]
    assert set.union(*splits) == words and sum(map(len, splits)) == len(words) == len(documents(corpus))
    assert set(documents(corpus)) <= set(texts)
    assert len(words) + corpus.duplicates == sum(bool(text.strip()) for text in texts)
    assert len(corpus.validation) == len(corpus.test) == len(words) // 10
    assert load_corpus(path) == corpus


def test_a_byte_order_mark_and_windows_line_ends_are_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes("\r\n\r\n".join(["One\r\ntwo.", *TEN]).encode("utf-8-sig"))
    assert sorted(documents(load_corpus(tmp_path))) == sorted(["One\ntwo.", *TEN])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"Fine.\ncaf\xe9", r"a.txt, line 2: not UTF-8 text \(byte 9\)"),
        ("a.md", "x\nSixteen bits.".encode("utf-16-le"), "a.md, line 1: a zero byte"),
        ("a.jsonl", b'{"text": "x"}\n{"text": "\\ud800"}', "a.jsonl, line 2: not JSON .*surrogates not allowed"),
        ("a.jsonl", b'{"text": "x"}\nnot json', "a.jsonl, line 2: not JSON"),
        ("a.jsonl", b'["text"]', "a.jsonl, line 1: expected an object"),
        ("a.txt", b"", "a.txt: 0 documents, .*at least 10"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(tmp_path, name, content, said):
    """Also where it is one file of many."""
    (tmp_path / name).write_bytes(content)
    if content:
        (tmp_path / "b.txt").write_text("\n\n".join(TEN))
    with pytest.raises(ValueError, match=said) as caught:
        load_corpus(tmp_path / name if not content else tmp_path)
    assert "\n" not in str(caught.value)


def test_a_subfolder_that_may_not_be_read_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "closed").mkdir()
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text(f"text {number}")
    scandir = os.scandir

    def refusing(place):
        if Path(place).name == "closed":
            raise PermissionError(13, "Permission denied", str(place))
        return scandir(place)

    assert len(load_corpus(tmp_path).train) == 8
    monkeypatch.setattr("os.scandir", refusing)
    with pytest.raises(PermissionError, match="closed"):
        load_corpus(tmp_path)


def test_no_name_is_no_folder(monkeypatch):
    monkeypatch.delenv("TLKIT_CORPUS", raising=False)
    for name in ("", " "):
        with pytest.raises(FileNotFoundError, match="expected rust, facts, general, kitchen, or a path"):
            load_corpus(name)
    assert load_corpus().name == "rust"


def test_only_the_readers_own_text_is_read(tmp_path):
    for folder in (".venv/lib", "a/.git", "a/b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "text.md").write_text(f"Text in {folder}.")
    (tmp_path / ".hidden.txt").write_text("Hidden.")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "folder.md" / "NOTES.TXT").write_text("\n\n".join(TEN))
    (tmp_path / "README.Md").write_text("Read me.")
    assert sorted(documents(load_corpus(tmp_path))) == sorted([*TEN, "Read me.", "Text in a/b."])
    (tmp_path / "again.txt").symlink_to(tmp_path / "folder.md" / "NOTES.TXT")
    (tmp_path / "round").symlink_to(tmp_path, target_is_directory=True)
    assert load_corpus(f"{tmp_path}{os.sep}").duplicates == 10
    (tmp_path / ".venv" / "ten.txt").write_text("\n\n".join(TEN))
    assert len(documents(load_corpus(tmp_path / ".venv"))) == 11, "a hidden folder that is named is read"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_blank_line_ends_a_document_whose_lines_stay(tmp_path, end):
    text = "Wrapped\n  prose.\n \t\n\tif a:\n\t\tb = 1\n\n\n\nThree."
    (tmp_path / "notes.md").write_bytes("\n\n".join([text, *TEN]).replace("\n", end).encode())
    read = set(documents(load_corpus(tmp_path / "notes.md"))) - set(TEN)
    assert read == {"Wrapped\n  prose.", "\tif a:\n\t\tb = 1", "Three."}


@quick
@given(texts=st.lists(st.text(max_size=20), min_size=1, max_size=8), block_size=st.integers(2, 12))
def test_packing_keeps_every_token_but_the_tail(tiny, texts, block_size):
    each = [
        [tiny.tokenizer.eos_token_id, *tiny.tokenizer(text, add_special_tokens=False)["input_ids"]] for text in texts
    ]
    expected = [token for tokens in each for token in tokens]
    stream, owners = token_stream(texts, tiny.tokenizer)
    assert stream.tolist() == expected
    assert owners.tolist() == [number for number, tokens in enumerate(each) for _ in tokens]
    with pytest.raises(ValueError, match="one string was given: expected a list of documents"):
        pack("One string.", tiny.tokenizer, block_size)
    if len(expected) < block_size:
        with pytest.raises(ValueError, match=f"{len(expected)} tokens do not fill one block of {block_size}"):
            pack(texts, tiny.tokenizer, block_size)
        return
    blocks = pack(texts, tiny.tokenizer, block_size)
    assert blocks.shape == (len(expected) // block_size, block_size)
    assert blocks.flatten().tolist() == expected[: blocks.numel()]


def test_what_a_tokenizer_puts_before_a_text_opens_each_document(tiny):
    """As with Llama and Gemma, which were trained with it; transformers' own call of the tokenizer is the reference."""
    tokenizer = copy.deepcopy(tiny.tokenizer)
    tokenizer.add_special_tokens({"bos_token": "<bos>"})
    opened = processors.TemplateProcessing("<bos> $A", special_tokens=[("<bos>", tokenizer.bos_token_id)])
    tokenizer.backend_tokenizer.post_processor = opened
    expected = [token for text in TEN for token in tokenizer(text)["input_ids"]]
    stream, _ = token_stream(TEN, tokenizer)
    assert stream.tolist() == expected and expected.count(tokenizer.bos_token_id) == len(TEN)


def test_a_special_token_within_a_text_is_refused_and_unknown_words_are_not(tiny):
    with pytest.raises(ValueError, match=r"document 2 contains '<\|endoftext\|>'"):
        token_stream(["One.", f"Two.{tiny.tokenizer.eos_token}Three."], tiny.tokenizer)
    tokenizer = copy.deepcopy(tiny.tokenizer)
    tokenizer.add_special_tokens({"unk_token": "<unk>"})
    stream, _ = token_stream(["A <unk> word."], tokenizer)  # as in WikiText
    assert tokenizer.unk_token_id in stream.tolist()


@quick
@given(st.data())
def test_windows_score_every_token_but_the_first_exactly_once(data):
    """And each after the `context - stride` tokens before it at least, or all there are."""
    length, context = data.draw(st.integers(1, 60)), data.draw(st.integers(2, 20))
    stride, batch_size = data.draw(st.integers(1, context)), data.draw(st.integers(1, 5))
    stream = torch.arange(length) + 1000
    scored = []
    for inputs, targets, places in _windows(stream, context, stride, batch_size):
        assert len(inputs) <= batch_size and inputs.shape[1] <= context
        assert torch.equal(stream[places], targets)
        assert torch.equal(inputs[:, -targets.shape[1] :] + 1, targets), "each is predicted from the token before it"
        before = torch.arange(inputs.shape[1] - targets.shape[1], inputs.shape[1]) + 1
        assert bool((before >= torch.minimum(places, torch.tensor(context - stride))).all())
        scored += places.flatten().tolist()
    assert scored == list(range(1, length))


ROWS = {
    split: [json.loads(line) for line in (DATA / "rust" / f"{split}.jsonl").read_text().splitlines()]
    for split in SPLITS
}


def ngrams(text: str, size: int) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


def test_rust_passages_do_not_repeat_one_another():
    rows = [(split, row["text"]) for split in SPLITS for row in ROWS[split]]
    shared = defaultdict(int)
    owners = defaultdict(list)
    for number, (_, text) in enumerate(rows):
        for gram in ngrams(text, 8):
            for other in owners[gram]:
                shared[other, number] += 1
            owners[gram].append(number)
    assert max(shared.values(), default=0) <= 1
    twelve = {split: set().union(*(ngrams(row["text"], 12) for row in ROWS[split])) for split in SPLITS}
    assert not twelve["train"] & twelve["test"] and not twelve["train"] & twelve["validation"]
    assert not twelve["validation"] & twelve["test"]
