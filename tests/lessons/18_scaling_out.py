from accelerate.commands.config.config_args import load_config_from_file

assert printed["held"] == [8.0736, 16.1472] and len(losses) == 3 and losses.notna().all().all()

times = speed["times as fast as one"]
assert times["NVLink"] > 6 and times["PCIe 5.0 x16"] > times["400 Gbit/s"] > 4.5
assert 2 > times["100 Gbit/s"] > 1 > times["10 Gbit/s"]
assert round(2 * 7 / 8 * 2 * 10) == 35 and 35e6 / 1.25e9 == 0.028  # LoRA: bytes, seconds
assert 0.03 < 4 / 6 / 2 * 6 * 1.5e9 * 32_768 / 400e12 / 8 < 0.031  # its backward pass: no frozen gradients
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
assert torch.allclose((252 * first + 60 * second) / 312, whole, atol=1e-6)  # weighted by tokens, it is right

# after: check-ring
assert whole.nbytes == 16_147_200 and sent == 24_220_800 == 2 * 3 / 4 * whole.nbytes
assert all(torch.equal(each, sums[0]) for each in sums)
