from openai import APIConnectionError
from scipy.stats import chi2, ncx2

assert len(held_out) == 75 and right == 69 and score == "69 of 75 right: 92% (84% to 96%)" and equal == len(pairs) == 98

# ` Python` is one token. After a lone space, the model mostly ends the text at once.
assert len(tokenizer(" Python")["input_ids"]) == 1
spaced = tokenizer(
    [f"{text} This is a question about " for text in held_out.question], padding=True, return_tensors="pt"
)
first = loaded(**spaced).logits[:, -1].argmax(-1)
assert (first == tokenizer.eos_token_id).sum() >= 55

# The plan of the test: never more false alarms than said, and k + 1 would have more.
assert least == {20: 16, 75: 64, 300: 266, 1000: 903} and len(release) == 20
drops = {}
for n, k in least.items():
    assert binom.cdf(k - 1, n, 69 / 75) < 0.025 <= binom.cdf(k, n, 69 / 75)
    drops[n] = round(100 * (69 / 75 - true[binom.cdf(k - 1, n, true) >= 0.8].max()))
assert drops == {20: 23, 75: 11, 300: 5, 1000: 3} and 0.015 < binom.cdf(15, 20, 69 / 75) < 0.025
assert binom.cdf(15, 20, 0.7) < 0.8 and binom.cdf(15, 20, 0.8) < 0.5

# One folder passed, and the other gave no answer that can be used; nobody serves any more.
assert tested["desk"].startswith("2 passed in") and tested["desk-2"].startswith("2 failed in")
assert {desk_of(text) for text in raw["desk-2"]} == {"unknown"} and raw["desk"][0].startswith(release.question.iloc[0])
try:
    OpenAI(base_url=url, api_key="none", max_retries=0, timeout=5).models.list()
    served = True
except APIConnectionError:
    served = False
assert not served

sizes = {name: row["MB"] for name, row in measured.items()}
assert round(sizes["fp32"], 1) == 16.1 and round(sizes["bf16"], 1) == 8.1 and 4.7 < sizes["4 bits"] < 5.2
kept = [row["same of 20"] for row in measured.values()]
assert kept[:2] == [20, 20] and 18 <= kept[2] <= 20  # two of the 75 are close to the border
in_4_bits = sum(a != b for a, b in zip(answers(model, held_out.question), named, strict=True))
assert model.is_quantized and in_4_bits <= 2
assert release.desk.value_counts().to_dict() == {"Python": 7, "Rust": 7, "other": 6}
assert (held_out.sample(20, random_state=0).desk == "Python").sum() == 2
# SmolLM2 by llama.cpp, tried once: its quantizer counted 98.87 MiB for 134,515,008 parameters.
assert round(8 * 98.87 * 2**20 / 134_515_008, 1) == 6.2
embedding = loaded.get_input_embeddings().weight.numel()
assert round(100 * embedding / loaded.num_parameters()) in (19, 20)

card = ModelCard.load(work / "desk" / "README.md")
assert card.data.license == "mit" and "69 of 75" in card.text and f"{truth[1]} of the 75" in card.text

# The two `if`s of lesson 1 on the same questions.
ifs = ["Python" if "Python" in question else "Rust" if "`" in question else "other" for question in held_out.question]
by_ifs, by_model = held_out.desk == ifs, held_out.desk == named
assert by_ifs.sum() == 66 and (by_model & ~by_ifs).sum() == 5 and (by_ifs & ~by_model).sum() == 2
assert binomtest(2, 7).pvalue > 0.4

# The release and the new form, and how often the alarm rings.
python = held_out[held_out.desk == "Python"].question
assert (python.str.contains("`").sum(), len(python)) == (17, 25)
assert truth == [69, 59] and counts.sum().tolist() == [75, 75]
assert (counts["new form"] - counts["release"]).to_dict() == {"Python": -4, "Rust": -6, "other": 10}
assert 0.2 < chi2_contingency(counts).pvalue < 0.3
for n, share in ((75, 0.13), (250, 0.57), (380, 0.80)):
    shift = chi2_contingency(counts * n / 75).statistic
    assert abs(ncx2.sf(chi2.ppf(0.99, 2), 2, shift) - share) < 0.01
sure = []
for questions in asked.values():
    last = loaded(**prepared(questions)).logits[:, -1]
    sure.append(last.softmax(-1).amax(-1).mean().item())
assert abs(sure[0] - 0.86) < 0.01 and abs(sure[1] - 0.84) < 0.01
