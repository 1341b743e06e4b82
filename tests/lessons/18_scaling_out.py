from accelerate.commands.config.config_args import load_config_from_file

assert out["held"] == [8.0736, 16.1472] and len(losses) == 3 and losses.notna().all().all()
assert after[0] - after[1] > 0.15 and abs(after[1] - after[2]) < 1e-4  # three updates; one model, but for rounding

times = speed["times as fast as one"]
assert times["NVLink"] > 4 and times.round(1).tolist()[1:3] == [3.6, 3.0] and times["100 Gbit/s"] < 1
assert speed["twice the batch"].round(1).tolist()[1:3] == [6.2, 5.2]
assert 2 * 7 / 8 * 4 * 10 == 70 and 2 * 7 / 8 * 4 * 1.5 == 10.5  # MB with LoRA, GB without it
assert abs(400 / 989 - 0.4) < 0.01  # of an H100's bf16

total = seven.loc["GB on each card"]
assert total["DDP"] > 80 > total["ZeRO-1"] and total.round().tolist() == [108, 37, 25, 13]
assert abs(seven["DDP"]["optimizer state"] / total["DDP"] - 0.75) < 1e-9
assert [round(sum(gb_per_card(7.5e9, 64, n).values()), 1) for n in stages] == [120, 31.4, 16.6, 1.9]  # the paper's
assert [round(100 * 3 / (m + 3)) for m in (4, 16)] == [43, 16]

for text, kind in ((ddp, "MULTI_GPU"), (fsdp, "FSDP")):
    (folder / "read.yaml").write_text(text)
    config = load_config_from_file(str(folder / "read.yaml"))
    assert config.distributed_type == kind and config.num_processes == 2 and config.main_process_port == 0
assert config.mixed_precision == "bf16" and config.fsdp_config["fsdp_version"] == 2

# after: check-shares
assert tokens == [252, 60] and (252 + 60) / 2 == 156 and 252 / 60 == 4.2 and round(100 * float(off)) == 85
assert f"{0.5 - 60 / 312:.2f}" == "0.31" and f"{0.31 * (second - first).norm():.1f}" == "3.2"
assert abs(sum(new_model()(input_ids=x, labels=y).loss.item() for x, y in shares(2)) / 2 - 5.26) < 0.006
assert torch.allclose((252 * first + 60 * second) / 312, whole, atol=1e-6)  # weighted by tokens, it is right

# after: check-ring
assert whole.nbytes == 16_147_200 and sent == 24_220_800 == 2 * 3 / 4 * whole.nbytes
assert all(torch.equal(each, sums[0]) for each in sums)
