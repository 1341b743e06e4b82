assert all(scores[name].iloc[-1] > 1.7 * scores[name][0] for name in ["other text"])  # it did overfit
assert scores["seven blocks"].iloc[-1] < 1.3
assert scores["seven blocks, shifted twice"].iloc[-1] > 5 * scores["seven blocks, shifted twice"][0]
assert scores["other text, shifted twice"].iloc[-1] < 2 * scores["other text, shifted twice"][0]
assert first_loss_warning(first_loss, math.log(rows[0]["other text, shifted twice"]))
assert first_loss_warning(first_loss, math.log(rows[0]["seven blocks"])) is None

size = model.config.vocab_size
torch.manual_seed(1)
again = [perplexity(AutoModelForCausalLM.from_config(model.config), held_out) for _ in range(3)]
assert size == 4096 and all(size < value < 1.1 * size for value in again)
assert len({round(value, 2) for value in again}) == 3  # and it differs from draw to draw
assert perplexity(new_model(), held_out) == perplexity(new_model(), held_out) < 200

assert (trained, total, len(left)) == (272_270_208, 630_167_424, 3)
last_two = ("layers.22.", "layers.23.", "lm_head", "model.norm")
counted = [p.numel() for name, p in done.named_parameters() if any(part in name for part in last_two)]
assert (len(counted), sum(counted)) == (26, 165_960_320)  # the report's 26 of 291
assert not any("layers" in name for name in left)

assert factors.round(1).to_list() == [3.0, 3.1, 3.1, 3.0] and first.is_monotonic_increasing
assert (first / factors).is_monotonic_increasing  # the order stays

tokens = record.groupby("document").tokens.first()
assert round(tokens.mean()) == 137 and len(tokens) == 40 and tokens.mean() > 4 * 32
assert (len(reports), rankings.nunique()) == (120, 13)
assert winners.to_dict() == {"full": 71, "freeze_embeddings": 27, "freeze_lower": 16, "last_layers": 6}
assert reports.mean().idxmin() == "full" and reports.mean().idxmax() == "last_layers"

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Traffic(TorchDispatchMode):
    """Adds up the bytes that operations read and write."""

    moved = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        read = {id(x): x for x in tree_leaves(args) if isinstance(x, torch.Tensor)}
        written = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        self.moved += sum(x.nbytes for x in [*read.values(), *written])
        return result


parameter = torch.nn.Parameter(torch.zeros(1_000_000))
parameter.grad = torch.ones_like(parameter)
step_by_step = torch.optim.AdamW([parameter], foreach=False)
step_by_step.step()  # makes the moments
with Traffic() as traffic:
    step_by_step.step()
assert round(traffic.moved / 1e6) == 80
with Traffic() as traffic:
    torch.nn.utils.clip_grad_norm_([parameter], 1.0, foreach=False)
assert round(traffic.moved / 1e6) == 12
last = sum(p.numel() for p in tl.meta_model("qwen2-0.5b").model.layers[-2:].parameters())
assert (last + 45 * 896, head) == (29_865_088, 136_134_656)
assert round(254.28 / 17.72, 1) == 14.3 and round(needed / 1e9, 1) == 9.0 and needed > 8 * 2**30
overhead = 17.72 / 140 - cost["traffic, default"]["as published"] / 288e9
assert 0.1 < overhead < 0.11 and round(cost["traffic, default"]["full"] / 288e9 + overhead, 2) == 0.28

# after: check-math
assert round(math.exp(4.6157)) == 101 and round(math.log(254_801), 1) == 12.4
assert 7.7 < math.log(254_801) - 4.6157 < 7.9 and round(math.log(387_789), 1) == 12.9


# after: check-ratios
assert ratios.round(1).to_list() == [1.5, 4.9, 7.5]
