from openai import APIConnectionError
from scipy.stats import chi2_contingency

assert len(held_out) == 75 and right == 69 and score == "69 of 75 right: 92% (84% to 96%)" and equal == len(pairs) == 98

# ` Python` is one token. After a lone space, the model mostly ends the text at once.
assert len(tokenizer(" Python")["input_ids"]) == 1
spaced = tokenizer(
    [f"{text} This is a question about " for text in held_out.question], padding=True, return_tensors="pt"
)
first = loaded(**spaced).logits[:, -1].argmax(-1)
assert (first == tokenizer.eos_token_id).sum() >= 55

# The plan of the test: never more false alarms than said, and k + 1 would have more.
assert least == {20: 16, 75: 64, 300: 266, 1000: 903} and len(QUESTIONS) == 20
drops = {}
for n, k in least.items():
    assert binom.cdf(k - 1, n, 69 / 75) < 0.025 <= binom.cdf(k, n, 69 / 75)
    drops[n] = round(100 * (69 / 75 - true[binom.cdf(k - 1, n, true) >= 0.8].max()))
assert drops == {20: 23, 75: 11, 300: 5, 1000: 3} and 0.015 < binom.cdf(15, 20, 69 / 75) < 0.025
assert binom.cdf(15, 20, 0.7) < 0.8 and binom.cdf(15, 20, 0.8) < 0.5

# One folder passed, and the other gave no answer that can be used; nobody serves any more.
assert tested["desk"].returncode == 0 and tested["desk-2"].returncode == 1
assert "2 passed" in tested["desk"].stdout and "2 failed" in tested["desk-2"].stdout and desk_of(broken) == "unknown"
try:
    OpenAI(base_url=url, api_key="none", max_retries=0, timeout=5).models.list()
    served = True
except APIConnectionError:
    served = False
assert not served

sizes = {name: row["MB"] for name, row in measured.items()}
assert round(sizes["fp32"], 1) == 16.1 and round(sizes["bf16"], 1) == 8.1 and 4.7 < sizes["4 bits"] < 5.2
hits = [row["right of 15"] for row in measured.values()]
assert min(hits) >= 11 and max(hits) - min(hits) <= 1
embedding = loaded.get_input_embeddings().weight.numel()
assert round(100 * embedding / loaded.num_parameters()) in (19, 20)

card = ModelCard.load(work / "desk" / "README.md")
assert card.data.license == "mit" and "69 of 75" in card.text and f"{truth[1]} of the 75" in card.text

# The two `if`s of lesson 1 on the same questions.
ifs = ["Python" if "Python" in question else "Rust" if "`" in question else "other" for question in held_out.question]
assert (held_out.desk == ifs).sum() == 66 > 75 * low

# The release and the new form.
assert truth[0] == 69 and 57 <= truth[1] <= 61 and "unknown" not in weeks.index
change = weeks["new form"] - weeks["release"]
assert abs(change["confidence"]) < 0.05 and 0.08 < change["other"] < 0.2 and -0.1 < change["Python"] < -0.04
per_week = (75 * weeks.drop("confidence")).round().to_numpy()
assert 0.1 < chi2_contingency(per_week).pvalue < 0.45 and 0.001 < chi2_contingency(per_week * 250 / 75).pvalue < 0.03
