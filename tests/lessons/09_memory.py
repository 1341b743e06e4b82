config = load().config
assert (d, m, L, V) == (config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.vocab_size)
assert a == config.num_attention_heads and k == config.num_key_value_heads * d // a and N == 4_036_800
assert kept == 3782 and round(4 * kept / 1000) == 15 and round(4 * kept * L / 1000) == 121
assert round(kept * L / 1000) == 30 and 1.05 < sum(by_hand.values()) / peak(full) < 1.07

assert parameters == 494_032_768 and round(16 * parameters / 1e9, 1) == 7.9
assert [round(parameters * each / 1e9, 2) for each in (4, 8)] == [1.98, 3.95] and round(8 * GiB / 1e9, 2) == 8.59
assert abs(calculated / traced - 1) < 0.01 and round(traced / 1e9, 1) == 9.0

columns = recipes[["weights", "gradients", "optimizer"]].T
assert columns["fp32, also autocast"].tolist() == [4, 4, 8]
assert columns["pure bf16"].tolist() == [2, 2, 4], "exactly half"
assert columns["bf16, fp32 master"].tolist() == [2, 4, 12], "18 bytes, 2 more than in fp32"


def kept_bytes(rows, autocast):
    """Bytes that the forward pass of the model without its head keeps for the backward pass."""
    model, saved = load(), {}
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    context = torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast)
    with context, torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model.model(input_ids=torch.zeros(rows, 128, dtype=torch.long), use_cache=False)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    return sum(saved.values())


assert kept_bytes(1, False) < kept_bytes(1, True), "with few tokens autocast needs more"
whole = kept_bytes(8, False)
assert 0.5 * whole < kept_bytes(8, True) < whole
assert AutoModelForCausalLM.from_pretrained(tl.BUNDLED).dtype == torch.float16
assert round(recipes["moved, %"]["pure bf16"]) == 4 and recipes["moved, %"].drop("pure bf16").min() > 95
bf16 = torch.tensor(0.07, dtype=torch.bfloat16)
assert bf16 + 1e-5 == bf16 and torch.finfo(torch.bfloat16).eps / 16 == 2**-11

assert sum(p.numel() for p in seven if not p.requires_grad) == 6_738_415_616
assert round(weights / GiB, 1) == 12.6 and 0.25 < adapters / GiB < 0.35
assert 0.7 < weights / peaks[0] < 0.8 and round(0.85 * 23.65) == 20
assert 16.5 < peaks[0] / GiB < 17.7 and 20.5 < peaks[1] / GiB < 22.5
assert 0.4 < 4 * (peaks[1] - peaks[0]) / GiB / 32 < 0.6, "lesson 10: a block of 2,048 tokens takes about 0.5 GiB"

# after: check-full
total = full[kinds].sum(axis=1)
peak_at = total.idxmax()
assert full.phase[peak_at] == "backward pass" and full.gradients[peak_at] == 0
assert set(kinds) == set(full.columns[1:])

# after: check-strategies
assert strategies["trained, %"].round().tolist() == [100, 5, 20]
share = strategies.activations / strategies.activations["all parameters"]
assert 0.85 < share["LoRA"] < 0.95 and 0.2 < share["last two blocks"] < 0.3
assert strategies["gradients"]["LoRA"] < 0.1 * strategies["gradients"]["all parameters"]

# after: check-published
total = published[kinds].sum(axis=1)
peak_at = total.idxmax()
assert published.phase[peak_at] == "backward pass" and published.activations[peak_at] < 1e6
three = 3 * 4 * 151_936 * 896  # the gradient of the embedding, three times
assert abs(published.temporary[peak_at] - three) < 1e5
assert (published.phase[peak_at:] == "backward pass").sum() < 100, "at its end"
