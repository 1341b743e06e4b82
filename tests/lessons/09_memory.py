assert (d, m, L, V, k, a, N) == (192, 512, 8, 4096, 96, 4, 4_036_800)
assert kept == 3782 and round(4 * kept / 1000) == 15
assert (pd.Series(by_hand) / counted - 1).abs().max() < 0.03 and round(peak(full) / MiB) == 213
assert 1.05 < sum(by_hand.values()) / peak(full) < 1.07

assert parameters == 494_032_768 and round(16 * parameters / 1e9, 1) == 7.9
assert [round(parameters * each / 1e9, 2) for each in (4, 8)] == [1.98, 3.95] and round(8 * GiB / 1e9, 2) == 8.59
at_loss = 4 * (24 * (8 * 896 + 2 * 128 + 4 * 4_864 + 14 + 2) + 3 * 151_936)  # of a token of qwen2-0.5b
assert 690 < (calculated - 12 * parameters) / at_loss < 710, "from about 700 tokens the loss needs most"
assert abs(calculated / traced - 1) < 0.01 and round(traced / 1e9, 1) == 9.0

assert recipes.T.round().to_numpy().tolist() == [[4, 4, 8, 100], [2, 2, 4, 4]], "exactly half, and 4% moved"
assert round(cast["activations"].max() / MiB) == 90, "autocast, of 120 MiB"
long = step_timeline("qwen2-0.5b", sequence_length=1_000, plan=autocast)["activations"].max() / 999
assert abs(long / published["activations"].max() * 511 - 1) < 0.02, "below about 1,000 tokens autocast keeps more"

step, ids = load(), torch.zeros(1, 16, dtype=torch.long)
with torch.profiler.profile(profile_memory=True) as profile:  # torch counts, not our modes
    step(input_ids=ids, labels=ids).loss.backward()
events = sorted(profile.profiler.kineto_results.events(), key=lambda one: one.start_ns())
sizes = [one.nbytes() for one in events if one.name() == "[memory]"]
highest = pd.Series(sizes).cumsum().max() - 4 * N
assert abs(highest - 2 * 4 * V * d) < 4e5, "the table's gradient three times; the rest is 16 tokens' logits"

bf16 = torch.tensor(0.07, dtype=torch.bfloat16)
assert bf16 + 1e-5 == bf16 and torch.finfo(torch.bfloat16).eps / 16 == 2**-11

assert base == 6_738_415_616 and round(2 * base / GiB, 1) == 12.6 and round(16 * adapters / GiB, 1) == 0.3
assert 0.75 < 2 * base / GiB / peaks[1] < 0.8 and round(0.85 * 23.65) == 20 and 2 * base / GiB < 0.5 * peaks[4]
assert 15.5 < peaks[1] < 16.5 and peaks[2] < 0.85 * 23.65 < peaks[4], "two rows fit"
assert round(peaks[2] - peaks[1], 1) == 3.3 and 0.35 < 4 * (peaks[2] - peaks[1]) / 32 < 0.45, (
    "lesson 10: a block of 2,048 tokens takes about 0.4 GiB"
)
autocast = tl.Plan(precision="bf16", activation_checkpointing=True)
assert peaks[4] - lora_peak(llama, 4, 512) / GiB > 2 * base / GiB * (1 - 4.127 / 16), "it saves more than QLoRA"

# after: check-full
peak_at = full[kinds].sum(axis=1).idxmax()
assert full.phase[peak_at] == "backward pass" and full.gradients[peak_at] == 0
assert set(kinds) == set(full.columns[1:])
assert round(full.activations.max() / MiB / 8) == 15 and round(full.activations.max() / MiB) == 120

# after: check-strategies
strategies = pd.DataFrame(strategies).T
assert strategies["peak, MiB"]["LoRA"] > 1.5 * strategies["peak, MiB"]["last two blocks"]
assert strategies["trained, %"].round().tolist() == [100, 5, 20]
share = strategies.activations / strategies.activations["all parameters"]
assert 0.85 < share["LoRA"] < 0.95 and 0.2 < share["last two blocks"] < 0.3
assert strategies["gradients"]["LoRA"] < 0.1 * strategies["gradients"]["all parameters"]

# after: check-published
peak_at = published[kinds].sum(axis=1).idxmax()
assert published.phase[peak_at] == "backward pass" and published.activations[peak_at] < 1e6
three = 3 * 4 * 151_936 * 896  # the gradient of the embedding, three times
assert abs(published.temporary[peak_at] - three) < 1e5
assert (published.phase[peak_at:] == "backward pass").sum() < 100, "at its end"
