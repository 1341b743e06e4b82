assert factor(0, 20) == 0.5 and factor(2, 20) == 1.0 and factor(19, 20) < 0.01
assert runs.rate.tolist() == [1e-4, 3e-4, 1e-3, 3e-3] and best == 1e-3 and len(batches_of(short, 0)) == 8
assert losses.shape == (4, 3)
spread = (losses.max(axis=1) - losses.min(axis=1)).max()
assert 0.055 < spread < 0.085, "up to 0.07"
assert 0.12 < losses.mean(axis=1)[lower] - losses.mean(axis=1)[best] < 0.16
assert (losses.idxmin() == best).all(), "each seed chooses the same rate"
step_down = losses.mean(axis=1)
assert step_down[lower] - step_down[best] < step_down[higher] - step_down[best]

assert record.learning_rate.nunique() == 8 and record.seed.nunique() == 2 and by_rate.idxmin() == best
assert round(table.before["Python reference"]) == 48

assert abs(train_losses[0] - before) < 0.4 and abs(math.log(254_801) - 12.4) < 0.1
assert table.after["Rust, test"] < table.before["Rust, test"]
assert len(few) == 7 and len(repeated) == 35 and len(tl.load_corpus("facts").train) == 25

assert stop == 1
assert abs(change[-1] - 0.58) < 0.05 and abs(low[-1] - 0.54) < 0.05 and abs(high[-1] - 0.62) < 0.05
assert abs(change[0] - 0.07) < 0.02 and low[0] > 0 and (low[2:] > 0).all()
assert np.mean(few_losses[-7:]) < 0.5

assert AutoModelForCausalLM.from_pretrained(tl.BUNDLED).dtype == torch.float16, "the file is in fp16"
defaults = TrainingArguments(mkdtemp())
assert (defaults.learning_rate, defaults.warmup_steps, defaults.weight_decay) == (5e-5, 0, 0.0)
assert defaults.lr_scheduler_type == "linear"
assert trainer.create_scheduler(35).lr_lambdas[0](0) == 0, "the first step of the warm-up changes nothing"
evaluations = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
assert len(evaluations) == 2 and evaluations[0] < evaluations[1]
assert trainer.state.best_model_checkpoint.endswith(f"checkpoint-{len(few)}")
assert -0.15 < gain[0] < -0.04 and gain[2] < 0
facts = " ".join(tl.load_corpus("facts").train)
said = [one.generate(**prompt, max_new_tokens=30, do_sample=False)[0] for one in (untouched, model, kept)]
recited = [tokenizer.decode(ids, skip_special_tokens=True) in facts for ids in said]
assert recited == [False, True, False], "the last model recites a training sentence, the other two do not"
