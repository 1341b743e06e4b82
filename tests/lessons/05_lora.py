from torch.utils.flop_counter import FlopCounterMode

assert len(apart) == 40
seeds = pd.read_csv(tl.DATA / "comparisons/tiny/runs.csv", comment="#").pivot_table("perplexity", "seed", "strategy")
assert (seeds.lora / seeds.full).round(2).tolist() == [1.17, 1.19, 1.2]
gains = np.log(scores["tiny"].perplexity["zero-shot"] / seeds).mean()
assert round(100 * gains.lora / gains.full) == 81

halved, usual, doubled = first_step.values()
assert abs(halved - usual) < 1e-4 and abs(doubled - usual) > 0.01

scored = rates.pivot_table("validation_perplexity", "strategy", "learning_rate").round()
assert scored.min(axis=1).tolist() == [78, 84] and scored.loc["lora", 0.001] == 118
assert scored.idxmin(axis=1).tolist() == [0.001, 0.01]

attention, mlp = 4 * 8 * (4096 + 4096), 3 * 8 * (4096 + 11008)  # A and B at rank 8, in each block of Llama 2 7B
adapter = 32 * (attention + mlp)
assert round(12 * 6.74) == 81 and round(2 * adapter / 1e6) == 40
assert round(adapter / 1e6) == 20 and round(12 * adapter / 1e9, 2) == 0.24


def arithmetic(model):
    with FlopCounterMode(display=False) as counter:
        model(input_ids=train_rows[:1], labels=train_rows[:1]).loss.backward()
    return counter.get_total_flops()


assert 0.7 < arithmetic(own) / arithmetic(new_model()) < 0.78
weights = 32 * (4 * 4096**2 + 3 * 4096 * 11008)  # two of three products, plus the adapters'
assert 0.66 < (2 * weights + 3 * adapter) / (3 * weights) < 0.7

# after: check-start
fresh = inject(new_model())
fresh(input_ids=train_rows[:2], labels=train_rows[:2]).loss.backward()
assert all(not part.A.grad.any() and part.B.grad.any() for part in adapters_of(fresh))

# after: check-switch
at = pd.DataFrame(table, ["Rust", "cooking"])
assert at.idxmin(axis=1).tolist() == ["adapter rust", "adapter kitchen"]
assert at["adapter kitchen"]["Rust"] > 1.05 * at["no adapter"]["Rust"]
assert at["adapter rust"]["cooking"] < 0.9 * at["no adapter"]["cooking"]
assert abs(at["no adapter"]["Rust"] / float(nats(new_model(), held_out).mean().exp()) - 1) < 1e-5
