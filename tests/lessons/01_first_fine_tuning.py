assert published.vocab_size == 151_936 and published.vocab_size < 2.5 * 64_249
assert round(100 * (1 - 64_249 / 387_789)) == 83
assert round(387_789 / published.vocab_size, 1) == 2.6
assert 450 < 116_362_380 / 254_801 < 460

# Weights, gradients and averages of Qwen2-0.5B nearly fill a card of 8 GB, and the bundled model can be trained here.
assert 7.8e9 < needed["qwen2-0.5b"] < 8e9
assert needed["tiny"] < min(needed["qwen2-0.5b"] / 100, device.free_memory)
left = 8 * 2**30 - needed["qwen2-0.5b"]  # a card of 8 GB has 8 GiB
of_scores = 512 * published.vocab_size * 4  # bytes, for 512 tokens
assert 0.65e9 < left < 0.75e9 and 0.55e9 < 2 * of_scores < 0.65e9

pieces = [tiny.tokenizer.decode([token]).strip() for token in ids]
assert "database" in pieces and "borrows" not in pieces

assert tiny.model.get_output_embeddings().weight is embedding
assert 0.19 < embedding.numel() / total < 0.21 and len(parts) == 98
in_two = 2 * published.vocab_size * published.hidden_size  # embedding and head
assert in_two + tl.meta_model("qwen2-0.5b").get_decoder().norm.weight.numel() == 272_270_208

assert len(saved) == len(same) == len(parts)
assert {tensor.dtype for tensor in saved.values()} == {torch.float16}
assert all(weights.equal(parts[name]) for name, weights in plain.named_parameters())
assert tokenizer("fn main")["input_ids"] == tiny.tokenizer("fn main")["input_ids"]
assert AutoModelForCausalLM.from_pretrained(tl.BUNDLED).dtype == torch.float16

assert broken is not None
assert len(missing) == 99 and missing >= set(parts)
