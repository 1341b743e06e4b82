from torch.utils.flop_counter import FlopCounterMode

assert count == 221_184 and len(adapters_of(own)) == 56

assert 2.4 < abs(before.mean() - after.mean()) * 5 < 3.2 and round(float(before.mean().exp())) in range(140, 155)

assert (apart > 0).sum() == 39 and len(apart) == 40
assert [round(100 * share) for share in higher] == [19, 15, 22]
assert risen.round(2).to_dict() == {"lora": 0.49, "full": 0.76}

assert 27 < kept["size"][8] < 31 and 20 < kept["gain"][192] - kept["gain"][8] < 28
assert kept["size"][8] < 33 and kept["gain"][192] < 97 and reached > kept["gain"][8] + 8

halved, usual, doubled = first_step.values()
assert abs(halved - usual) < 1e-4 and abs(doubled - usual) > 0.01

losses = runs.pivot(index="rank", columns="learning_rate", values="validation_nats")
assert losses.idxmin(axis=1).to_dict() == {1: 0.02, 2: 0.02, 8: 0.01, 32: 0.005}
assert losses.loc[32, 0.01] > losses.loc[8, 0.01] and losses.min(axis=1).idxmin() == 32

near = rates[slower].groupby("strategy")[columns].mean().round()
assert near.loc["full"].tolist() == [87, 44] and near.loc["lora"].tolist() == [92, 43]
scored = rates.pivot_table("validation_perplexity", "strategy", "learning_rate").round()
assert [scored.loc["lora", 0.001], scored.loc["full", 0.001], scored.loc["lora", 0.01]] == [118, 78, 84]
assert scored.idxmin(axis=1).to_dict() == {"full": 0.001, "lora": 0.01}

assert round(12 * 6.74) == 81 and round(2 * adapter / 1e6) == 40


def arithmetic(model):
    with FlopCounterMode(display=False) as counter:
        model(input_ids=train_rows[:1], labels=train_rows[:1]).loss.backward()
    return counter.get_total_flops()


assert 0.7 < arithmetic(own) / arithmetic(new_model()) < 0.78

# after: check-start
fresh = inject(new_model())
fresh(input_ids=train_rows[:2], labels=train_rows[:2]).loss.backward()
assert all(not part.A.grad.any() and part.B.grad.any() for part in adapters_of(fresh))
assert float(of_a) > 0

# after: check-switch
at = {name: dict(zip(("Rust", "cooking"), scores, strict=True)) for name, scores in table.items()}
assert min(at, key=lambda name: at[name]["Rust"]) == "adapter rust"
assert min(at, key=lambda name: at[name]["cooking"]) == "adapter kitchen"
assert abs(at["no adapter"]["Rust"] / float(nats(new_model(), held_out).mean().exp()) - 1) < 1e-5

# after: check-merged
assert sum(p.numel() for p in merged.parameters()) == 4_036_800
assert type(merged).__name__ == "Qwen2ForCausalLM"
