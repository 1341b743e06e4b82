assert scores["other text"].iloc[-1] > 3 * scores["other text"][0]  # it did overfit
for text in ("seven blocks", "other text"):
    twice = scores[f"{text}, shifted twice"]
    assert (twice > 10 * scores[text]).all() and twice[1] < min(twice[0], twice[10] / 1.2)  # it falls at first
before = scores.iloc[0].map(math.log)
assert before.round(1).to_list() == [4.6, 10.0, 5.0, 9.4]
assert scores["seven blocks"][10] < 1.3 and scores.iloc[10, 1] > 5 * scores.iloc[0, 1]

assert size == 4096 < perplexity(random, held_out) < 1.1 * size
assert math.isclose(perplexity(built, held_out), good := perplexity(new_model(), held_out), rel_tol=1e-3) and good < 200
assert 2 < perplexity(untrained, held_out) / size < 3.2  # a factor of e on average
assert round(math.log(151_936) + 1, 1) == round(math.log(387_789), 1) == 12.9

left = {name: p.numel() for name, p in done.named_parameters() if p.requires_grad}
assert (sum(left.values()), done.num_parameters(), len(left)) == (272_270_208, 630_167_424, 3)  # no layer's
upper = [p.numel() for name, p in done.named_parameters() if "layers.22" in name or "layers.23" in name]
assert len(upper) + 2 == 26 and sum(upper) + 896 + done.lm_head.weight.numel() == 165_960_320
first, last = [191_609, 329_432, 646_471, 896_122], [64_249, 104_839, 206_584, 303_045]
assert {round(a / b) for a, b in zip(first, last, strict=True)} == {3}
assert (first, last) == (sorted(first), sorted(last)) and 2.25 < first[3] / 387_789 < 2.35
assert round(pd.Series(first).map(math.log).std(), 2) == 0.69

tokens = record.groupby("document").tokens.first()
assert round(tokens.mean()) == 137 and len(tokens) == 40 and tokens.mean() > 4 * 32
means = losses[four].mean().to_list()
assert means == sorted(means) and round(means[1] - means[0], 2) == 0.07 and means[3] - means[1] < 0.045
chances = losses.idxmin(axis=1).value_counts() / 120
assert chances.idxmax() == "full" and 0.55 < chances["full"] < 0.65 and wins > 0.98 and len(set(ranks)) > 3

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Traffic(TorchDispatchMode):
    moved = 0  # bytes read and written

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        read, written = ([x for x in tree_leaves(xs) if torch.is_tensor(x)] for xs in (args, result))
        self.moved += sum(x.nbytes for x in [*{id(x): x for x in read}.values(), *written])
        return result


parameter = torch.nn.Parameter(torch.zeros(1_000_000))
parameter.grad = torch.ones_like(parameter)
step_by_step = torch.optim.AdamW([parameter], weight_decay=0.0, foreach=False)
step_by_step.step()  # makes the moments
with Traffic() as seen:
    step_by_step.step()
assert round(seen.moved / 1e6) == 72
with Traffic() as seen:
    torch.nn.utils.clip_grad_norm_([parameter], 1.0, foreach=False)
assert round(seen.moved / 1e6) == 12
last = sum(p.numel() for p in tl.meta_model("qwen2-0.5b").model.layers[-2:].parameters())
assert (last, last + 45 * 896, round(254.28 / 17.72, 1)) == (29_824_768, 29_865_088, 14.3)
assert 0.004 < 6 * 32 * P / 22e12 < 0.0045
assert runs.ratio.round(1).tolist() == [6.6, 5.7, 3.7, 1] and round(runs.traffic.iloc[3], 2) == 0.02
assert round(runs.expected.iloc[0] / 17.72 * 140, 1) == 2.2 and runs.expected[1:].max() < 0.25
seconds = pd.read_csv(tl.DATA / "leaderboards/peft_metamathqa.csv").set_index("method").train_seconds.round(2)
assert 941.96 in [*seconds.LORA] and seconds.FULL == 2147.30 and round(2147.30 / 5000 / expected, 1) == 1.2
assert (runs[["GB", "GB with base_model"]] > 8 * 2**30 / 1e9).sum().tolist() == [1, 3]

assert (round(math.log(254_801), 1), round(116_362_380 / 254_801)) == (12.4, 457)
assert round(results["sound"]["first loss"], 1) == 4.6 and round(results["shifted twice"]["eval loss"], 1) == 9.4
assert [round(results["random"][key], 1) for key in ("first loss", "eval loss")] == [8.4, 8.3]
assert [results[name]["trained"] for name in ("sound", "by name")] == [2 * 406_272, 815_040]
found = pd.DataFrame(results.values())[["evaluation", "loading", "count"]].astype(int).to_numpy()
assert (found[0] == 0).all() and (found[1:] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]).all()
