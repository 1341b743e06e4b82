assert tokens == [252, 60]

assert losses[1].iloc[-1] < losses[1].iloc[0]

assert two_cards.returncode == 0 and len(by_two) == 3, two_cards.stderr[-2000:]

assert by_one[-1] < by_one[0] + 0.2

on_ethernet = travel["seconds by 10 Gbit Ethernet, 1.25 GB/s"]
assert round(travel["GB sent"]["full"], 1) == 47.2 and 330 < fewer < 345
assert on_ethernet["full"] > 30 and on_ethernet["lora"] < 0.2
assert round(travel["seconds by PCIe 4.0 x16, 31.5 GB/s"]["full"], 1) == 1.5

assert fits == {"RTX 4090 24GB": 8, "A100 40GB": 4, "A100 80GB": 2}
assert 0.4 < own < 0.5 and gib[64] == 9.0 and gib[1] > 80 and gib[8] == 17.2

assert needs[8].categories["gradients"] == 0 < needs[4].categories["gradients"]
assert max(needs[4].phases, key=needs[4].phases.get) == "backward pass"
assert max(needs[8].phases, key=needs[8].phases.get) == "forward pass"

more = (parted.predicted / several.predicted)[2]
assert round(more, 1) == 1.9
assert not counted or ((parted.sent / parted.predicted - 1).abs() < 0.02).all()

assert mlp.gate_proj.weight.shape == (512, 192)

assert gib[2] > gib[1] / 2, "Two cards need more than half of what one needs"

in_parts = steps[steps.exchange == "fsdp"].pivot(index="step", columns="processes", values="loss")
same = ((in_parts - losses[[2, 4]]).abs() < 1e-5).all(axis=None)
assert same, "The curve is the same again"

assert apart < 1e-5, "Two half MLPs add up to the whole one, to 1e-5 of its size"

# after: check-whole
assert apart < 1e-6, "The mean of two cards' gradients is the whole batch's, to 1e-6"
assert len(whole) == 4_036_800 and (first - second).abs().max() > 0.01

# after: check-tl
assert round(2 * (2 - 1) / 2 * 4 * 4_036_800 / 1e6, 2) == 16.15
assert round(6 * 4 * 4_036_800 / 4 / 1e6, 2) == 24.22
assert round(3 * 4 * 4_036_800 / 1e6, 2) == 48.44
assert 2 * (4 - 1) / 4 * 4 * 4_036_800 == 24_220_800 == on_paper.sent_per_step(model, 4)

# after: check-tl-2
assert [round(100 * share) for share in idle.values()] == [75, 43, 16]
config = tl.architecture("llama2-7b")
assert round(512 * config.hidden_size * 4 / 1e6, 1) == 8.4
assert config.num_hidden_layers == 32

# after: check-own
weighted = (tokens[0] * own[0] + tokens[1] * own[1]) / sum(tokens)
assert (weighted - whole).abs().max() < 1e-6, "Weighted by tokens it is right, to 1e-6"
plain_mean = (own[0] + own[1]) / 2
error = (plain_mean - whole).norm() / whole.norm()
assert error > 1 / 3, "The plain mean is wrong by more than a third of its size"

# after: check-apart
assert all(torch.equal(s, sums[0]) for s in sums), "All four cards have the same sum"
assert apart < 1e-6, "A quarter of it is the whole batch's gradient, to 1e-6"

# after: check-apart-2
assert apart < 1e-4, "Two DDP processes print one process's losses, to 1e-4"
