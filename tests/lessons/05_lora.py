from torch.utils.flop_counter import FlopCounterMode

assert count == 221_184 and len(adapters_of(own)) == 56

assert len(apart) == 40
assert round(100 * (kept["size"][8] / 100) ** 0.5) == 54

halved, usual, doubled = first_step.values()
assert abs(halved - usual) < 1e-4 and abs(doubled - usual) > 0.01

scored = rates.pivot_table("validation_perplexity", "strategy", "learning_rate").round()
assert [scored.loc["lora", 0.001], scored.loc["full", 0.001], scored.loc["lora", 0.01]] == [118, 78, 84]
assert scored.idxmin(axis=1).to_dict() == {"full": 0.001, "lora": 0.01}

attention, mlp = 4 * 8 * (4096 + 4096), 3 * 8 * (4096 + 11008)  # A and B at rank 8, in each block of Llama 2 7B
adapter = 32 * (attention + mlp)
assert round(12 * 6.74) == 81 and round(2 * adapter / 1e6) == 40, "GB for all parameters, MB of the file"
assert round(adapter / 1e6) == 20 and round(12 * adapter / 1e9, 2) == 0.24


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
assert at["adapter kitchen"]["Rust"] > 1.05 * at["no adapter"]["Rust"]
assert at["adapter rust"]["cooking"] < 0.9 * at["no adapter"]["cooking"]
assert abs(at["no adapter"]["Rust"] / float(nats(new_model(), held_out).mean().exp()) - 1) < 1e-5

# after: check-merged
assert sum(p.numel() for p in merged.parameters()) == 4_036_800
assert type(merged).__name__ == "Qwen2ForCausalLM"
