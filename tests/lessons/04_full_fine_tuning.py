assert factor(0, 20) == 0.5 and factor(2, 20) == 1.0 and factor(19, 20) < 0.01 and factor(0, 8) == 1.0
assert runs.rate.tolist() == [1e-4, 3e-4, 1e-3, 3e-3] and best == 1e-3 and len(batches_of(short, 0)) == 8
*others, highest = table.spread
assert abs(highest - 0.12) < 0.03 and min(others) > 0.01 and max(others) < 0.08
nearest = table.loc[3e-4].drop("spread")
assert abs(nearest.min() - 0.11) < 0.02 and abs(nearest.max() - 0.14) < 0.02

assert len(few) == 14 and len(repeated) == 24 and len(tl.load_corpus("facts").train) == 25
assert stop == 1 and abs(np.mean(few_losses[-4:]) - 0.3) < 0.1
change, low, high = np.array(judged).T
assert abs(change[-1] - 0.54) < 0.05 and abs(low[-1] - 0.48) < 0.05 and abs(high[-1] - 0.61) < 0.05
assert abs(change[0] - 0.10) < 0.02 and low[0] > 0 and (low[2:] > 0).all()
assert continued(model, sentence[:20], 30) == sentence[20:]

assert AutoModelForCausalLM.from_pretrained(tl.BUNDLED).dtype == torch.float16
defaults = TrainingArguments(mkdtemp())
assert (defaults.learning_rate, defaults.warmup_steps, defaults.weight_decay) == (5e-5, 0, 0.0)
assert defaults.lr_scheduler_type == "linear"
assert trainer.create_scheduler(24).lr_lambdas[0](0) == 0
untrained, first_epoch, second_epoch = log.eval_loss.dropna()
assert first_epoch < second_epoch and trainer.state.best_model_checkpoint.endswith("checkpoint-34")
assert abs(log.loss.dropna().item() - 4.94) < 0.05 and abs(untrained - 4.94) < 0.5
assert abs(math.log(254_801) - 12.4) < 0.1

assert not any("Python" in text for text in rust.train[:60])
before, after = score(untouched, rust.test[:20]), score(tuned, rust.test[:20])
assert abs(mean_loss(before) - math.log(133)) < 0.02 and abs(mean_loss(after) - math.log(67)) < 0.06
assert abs(after.guessed.sum() / after.tokens.sum() - 0.25) < 0.02
assert all(ours[:2] == text[:2] != theirs[:2] for _, theirs, ours, text in rows)
by_rate = record.groupby("learning_rate")[scores].mean().round()
assert by_rate.validation_perplexity.tolist()[:3] == [87, 78, 83] and record.seed.nunique() == 2
assert by_rate.general_perplexity.tolist()[:2] == [44, 53] and (by_rate.loc[1e-2] > 3 * by_rate.loc[best]).all()
assert math.ceil(len(tl.pack(rust.train[:60], tokenizer, 128)) / 4) == 17
