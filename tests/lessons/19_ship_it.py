from openai import APIConnectionError

assert len(held_out) == 75 and right == 69 and [round(100 * end) for end in (interval.low, interval.high)] == [84, 96]

# One token is ` Rust`'s beginning with its space: after a space the model stands elsewhere.
assert tokenizer.decode(tokenizer(" Rust")["input_ids"][:1]).startswith(" ")

# The plan of the test: never more false alarms than said, and k + 1 would have more.
assert plan.k.tolist() == [16, 64, 266, 903]
assert plan["drop"].tolist() == ["23 points", "11 points", "5 points", "3 points"]
for n, k in plan[["questions", "k"]].to_numpy():
    assert binom.cdf(k - 1, n, 69 / 75) < 0.025 <= binom.cdf(k, n, 69 / 75)
assert len(asked) == 20 and max(abs(fails[20][-1] - 0.02), abs(fails[300][-1] - 0.02)) < 0.005

# One folder passed, and the other gave no answer that can be used; nobody serves any more.
assert tested["desk"].returncode == 0 and tested["desk-2"].returncode == 1
assert "AssertionError: 0 of 20 right" in tested["desk-2"].stdout and desk_of(broken) == "unknown"
try:
    OpenAI(base_url=url, api_key="none", max_retries=0, timeout=5).models.list()
    served = True
except APIConnectionError:
    served = False
assert not served
weights = [
    pd.Series(dict(AutoModelForCausalLM.from_pretrained(work / name).named_parameters())).map(torch.sum).map(float)
    for name in ("desk", "desk-2")
]
assert weights[0].equals(weights[1])

sizes = {name: row["MB"] for name, row in measured.items()}
assert round(sizes["fp32"], 1) == 16.1 and round(sizes["bf16"], 1) == 8.1 and 4.7 < sizes["4 bits"] < 5.2
assert sizes["fp32"] == 2 * sizes["bf16"] and [row["right of 25"] >= 20 for row in measured.values()] == [True] * 3
embedding = loaded.get_input_embeddings().weight.numel()
assert round(100 * embedding / loaded.num_parameters()) in (19, 20)

assert card.data.eval_results[0].metric_value == 0.92 and "69 of 75" in card.text and equal == len(pairs) == 98

# The release and the new form.
assert truth["release"] == 69 and 55 <= truth["new form"] <= 63
assert (
    weeks["new form"]["unknown"] <= 0.03
    and abs(weeks["new form"]["confidence"] - weeks["release"]["confidence"]) < 0.05
)
assert 0.08 < more < 0.2 and more == weeks["new form"]["other"] - weeks["release"]["other"]
