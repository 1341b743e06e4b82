assert torch.allclose(nf4, state.code, atol=1e-6), "These are the levels of bitsandbytes, to 1e-6"
assert len(nf4) == 16 and (nf4 < 0).sum() == 7 and (nf4 > 0).sum() == 8

costs = cost.astype(float)
assert costs["64 weights"].max() < 3 and costs.loc["int4", "a matrix"] > 10
assert (costs["a matrix"] > costs["64 weights"] + 1).all()

as_int4 = quantised_model(int4, 64)
between = nats(ours, held_out) - nats(as_int4, held_out)
assert between.mean().abs() < 2 * between.std() / len(between) ** 0.5, "NF4 and int4 cannot be told apart here"
for part in as_int4.model.layers.modules():
    if isinstance(part, nn.Linear):
        again, largest = encode(part.weight.data, nf4, 64)
        part.weight.data = (nf4[again] * largest).reshape(part.weight.shape)
assert 0.03 < (nats(as_int4, held_out) - before).mean().expm1() < 0.055, "Rounded twice"

assert 0.08 < error < 0.1 and 0.82 < same < 0.92
assert 0.45 < less < 0.57

assert torch.allclose(theirs, nats(ours, held_out), atol=5e-3), "Quantised by hand and by the library: the same losses"

assert [round(number, 1) for number in ends["tiny"]] == [1.0, 0.2, 1.7]
assert [round(number, 1) for number in ends["smollm2-135m-instruct"]] == [7.3, 5.9, 8.7]

left = sizes["left, %"].round()
assert left["qwen2-0.5b"] == 46 and left["llama2-7b"] == 29 and round(sizes["16 bits, GB"]["llama2-7b"], 1) == 13.5
seven = tl.meta_model("llama2-7b")
ends_of_it = seven.get_input_embeddings().weight.numel() + seven.get_output_embeddings().weight.numel()
assert round(100 * ends_of_it / sum(p.numel() for p in seven.parameters())) == 4
assert tl.meta_model("qwen2-0.5b").config.vocab_size == 151_936

assert {p.dtype for p in trained} == {torch.float32}
assert model.get_base_model().model.layers[0].mlp.up_proj.weight.dtype == torch.uint8

# after: check-equal
assert int((bytes_by_hand != packed.flatten()).sum()) <= 2, "The bytes are those of bitsandbytes"
change = (coarse(scales) / scales - 1).abs()
assert change.mean() < 0.01, "It changes a scale by less than 1% on average"
