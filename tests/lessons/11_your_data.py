from trl.chat_template_utils import get_training_chat_template

assert [len(table) for table in (tracker, chat, instructions, export)] == [40, 26, 26, 21]
assert steps == [
    ("as read", 0, 113),
    ("no answer", 6, 107),
    ("copy of another row", 10, 97),
    ("two answers", 8, 89),
    ("far too long", 1, 88),
]
as_they_are = pd.concat(
    [
        tracker[["report"]].assign(answer=[json.dumps(json.loads(a)) if a else "" for a in tracker.answer]),
        chat[["report", "answer"]],
        instructions[["input", "output"]].set_axis(["report", "answer"], axis=1),
        export[["prompt", "completion"]].set_axis(["report", "answer"], axis=1),
    ]
)
as_they_are = as_they_are[as_they_are.answer.fillna("").str.strip() != ""]
assert as_they_are.duplicated().sum() == 1
log = rows.report[rows.report.str.len().idxmax()]
assert 19.5 < len(log) / rows.report.str.len().median() < 20.5 or 19.5 < length.max() / length.median() < 20.5
once = rows[rows.answer != ""].drop_duplicates(["key", "answer"])
doubtful = once[once.duplicated("key", keep=False)]
kinds = doubtful.answer.map(lambda answer: json.loads(answer)["kind"]).groupby(doubtful.key).agg(set)
assert len(kinds) == 4 and {"crash", "slow"} in kinds.to_list()
assert (doubtful.groupby("key").file.agg(set) == {"tracker", "instructions"}).all()
assert all(list(json.loads(answer)) == ["crate", "version", "system", "kind"] for answer in clean.answer)

near = similar > 0.5
np.fill_diagonal(near, False)
assert near.sum() == 2 * 24 and similar[~near & ~np.eye(88, dtype=bool)].max() < 0.2
writers = clean.writer.to_numpy(dtype=object)
assert all(writers[one] == writers[other] for one, other in np.argwhere(near)) and clean.writer.nunique() == 8
assert all(clean.answer[one] == clean.answer[other] for one, other in np.argwhere(near))
assert sum(clean.file[one] != clean.file[other] for one, other in np.argwhere(near)) > 24
assert held_out.sum() == 20
draw = np.random.default_rng(0)
by_row = [similar[np.ix_(test, ~test)].max(1) > 0.5 for test in (draw.permutation(88) < 22 for _ in range(200))]
assert round(np.sum(by_row) / 200) == 9

assert as_text(clean.messages[1]).endswith("<|im_end|>\n") and tokenizer.pad_token_id != tokenizer.eos_token_id == end
assert all(one["labels"][-1] == end and one["labels"].count(end) == 1 for one in examples)
whole = [tokenizer(as_text(messages)).input_ids for messages in clean.messages]
assert all(one["input_ids"] == tokens[: len(one["input_ids"])] for one, tokens in zip(examples, whole, strict=True))

lengths = np.array([len(one["input_ids"]) for one in examples])
assert (lengths.min(), lengths.max()) == (97, 247) and round(100 * (1 - real.float().mean().item())) == 4
assert 7 * (len(tokenizer(log).input_ids) - lengths.max()) > lengths.sum()

assert noticed["answer cut away"][0] == "no answer" and "no end token" in noticed["answer cut away"]
assert [noticed[name] for name in list(noticed)[2:5]] == [["no end token"], ["not three messages"], ["prompt learned"]]
assert noticed["padding learned"] == ["prompt learned", "padding learned"]
assert noticed["nothing"] == []
assert check_batch(collate([{key: one[key][:-5] for key in one} for one in few])) == ["no end token"]
try:
    marked = get_training_chat_template(tokenizer) is None
except ValueError:  # the template of the page has no {% generation %}
    marked = False
assert not marked

assert (ready["train"].num_rows, ready["test"].num_rows) == (68, 20)
assert set(ready["test"]["writer"]) == {"w03", "w10"} and not {"w03", "w10"} & set(ready["train"]["writer"])
read_back = datasets.load_from_disk(f"{work}/ready")["test"]
assert read_back[0]["input_ids"][:3] == ready["test"][0]["input_ids"][:3]
loaded = AutoTokenizer.from_pretrained(f"{work}/ready/tokenizer")
assert loaded.eos_token_id == end and loaded.chat_template == tokenizer.chat_template

assert short.num_rows == len(losses) == 24 and losses[-1] < losses[0] / 2
assert abs(np.mean(losses[-8:]) - np.mean(its_losses[-8:])) < 0.1
assert stopped["your collator"] >= 7 and stopped["end masked"] == 0


def fields(answer):
    try:
        return json.loads(answer)
    except ValueError:
        return {}


kept = tuned.generate(**given, max_new_tokens=72, do_sample=False, eos_token_id=end)[:, given.input_ids.shape[1] :]
said = list(map(fields, tokenizer.batch_decode(kept, skip_special_tokens=True)))
assert sum(list(answer) == ["crate", "version", "system", "kind"] for answer in said) >= 7
pairs = zip(said, map(json.loads, clean.answer[held_out]), strict=False)
agree = [name for answer, label in pairs for name in answer if answer[name] == label.get(name)]
assert set(agree) == {"system"} and 3 <= len(agree) <= 5
