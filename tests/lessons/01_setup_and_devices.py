assert published.vocab_size < 2.5 * 64_249
assert round(100 * (1 - 64_249 / 387_789)) == 83
assert round(387_789 / published.vocab_size, 1) == 2.6
assert 450 < 116_362_380 / 254_801 < 460

assert 0.19 < embedding.numel() / total < 0.21 and len(parts) == 98
assert published.vocab_size == 151_936

assert len(saved) == len(same)
assert {tensor.dtype for tensor in saved.values()} == {torch.float16}

assert len(missing) == 99 and missing >= set(parts)

# after: check-scores
left = 8 * 2**30 - needed["qwen2-0.5b"]  # a card of 8 GB has 8 GiB
assert 0.65e9 < left < 0.75e9 and 0.55e9 < 2 * scores < 0.65e9

# after: check-tl
assert tokenizer("fn main")["input_ids"] == tiny.tokenizer("fn main")["input_ids"]
assert AutoModelForCausalLM.from_pretrained(tl.BUNDLED).dtype == torch.float16
