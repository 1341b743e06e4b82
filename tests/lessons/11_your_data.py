from trl import SFTConfig
from trl.chat_template_utils import get_training_chat_template
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

assert [len(table) for table in (tracker, chat, instructions, export)] == [40, 26, 26, 21]
assert steps == [
    ("as read", 0, 113),
    ("no answer", 6, 107),
    ("copy of another row", 10, 97),
    ("two answers", 8, 89),
    ("far too long", 1, 88),
]
as_they_are = pd.concat(renamed).fillna("")
as_they_are = as_they_are[as_they_are.answer.str.strip() != ""]
assert as_they_are.duplicated(["report", "answer"]).sum() == 3
once = rows[rows.answer != ""].drop_duplicates(["key", "answer"])
doubtful = once[once.duplicated("key", keep=False)]
kinds = doubtful.answer.map(lambda answer: json.loads(answer)["kind"]).groupby(doubtful.key).agg(set)
assert len(kinds) == 4 and {"crash", "slow"} in kinds.to_list()
assert (doubtful.groupby("key").file.agg(set) == {"tracker", "instructions"}).all()
assert all(list(json.loads(answer)) == ["crate", "version", "system", "kind"] for answer in clean.answer)

near = similar > 0.5
np.fill_diagonal(near, False)
assert near.sum() == 2 * 24 and similar[~near & ~np.eye(88, dtype=bool)].max() < 0.2 and len(ngrams("a b")) == 1
writers = clean.writer.to_numpy(dtype=object)
assert all(writers[one] == writers[other] for one, other in np.argwhere(near)) and clean.writer.nunique() == 8
assert all(clean.answer[one] == clean.answer[other] for one, other in np.argwhere(near))
assert round(np.mean([leaking(*draw) for draw in by_row])) == 9 and all(len(test) == 22 for _, test in by_row)
crates = np.array([json.loads(answer)["crate"] for answer in clean.answer])
assert len(set(crates[test_at])) == 15 and len(set(crates[test_at]) & set(crates[train_at])) == 6
assert not any(leaking(*draw) for draw in by_writer) and not leaking(np.r_[train_at, validation_at], test_at)

assert as_text(clean.messages[1]).endswith("<|im_end|>\n") and tokenizer.pad_token_id != tokenizer.eos_token_id == end
assert all(one["labels"][-1] == end and one["labels"].count(end) == 1 for one in examples)
whole = [tokenizer(as_text(messages)).input_ids for messages in clean.messages]
assert all(one["input_ids"] == tokens[: len(one["input_ids"])] for one, tokens in zip(examples, whole, strict=True))

assert sum(len(one["input_ids"]) > limit for one in few) == 1
of_trl = DataCollatorForLanguageModeling(pad_token_id=tokenizer.pad_token_id)(few)
assert all(torch.equal(of_trl[key], batch[key]) for key in batch)

assert all(noticed[fault] == ["learns something else"] for fault in ("answer cut", "end token masked", "all learned"))
assert (noticed["template twice"], noticed["nothing"]) == (["not three messages"], [])
try:
    marked = get_training_chat_template(tokenizer) is None
except ValueError:  # the template of the page has no {% generation %}
    marked = False
assert not marked

assert [part.num_rows for part in stored.values()] == [46, 21, 15]
groups = [set(part["writer"]) for part in stored.values()]
assert [len(group) for group in groups] == [4, 2, 2] and len(set().union(*groups)) == 8
assert SFTConfig(work, use_cpu=True).max_length == 1024
assert stored["test"][0]["input_ids"] == examples[test_at[0]]["input_ids"]
loaded = AutoTokenizer.from_pretrained(f"{work}/tokenizer")
assert loaded.eos_token_id == end and loaded.chat_template == tokenizer.chat_template

assert short.num_rows == 23 and len(losses) == 23 and losses[-1] < losses[0] / 2
assert abs(np.mean(losses[-8:]) - np.mean(masked_losses[-8:])) < 0.1
lengths = {name: [len(tokenizer(text).input_ids) for text in texts] for name, texts in answers.items()}
assert max(lengths["your collator"]) < 60 < min(lengths["end token masked"])  # 72 where it does not stop
form = r'{"crate": .*, "version": .*, "system": .*, "kind": "(.*)"}'
kinds = pd.Series(answers["your collator"]).str.extract(form)[0]
assert kinds.notna().sum() >= 7
pairs = zip(answers["your collator"], map(json.loads, asked.answer), strict=True)
right = [f'"{name}": {json.dumps(value)}' in text for text, label in pairs for name, value in label.items()]
assert sum(right) <= 5 and len(right) == 32
