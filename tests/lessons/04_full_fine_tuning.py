assert factor(0, 20) == 0.5 and factor(2, 20) == 1.0 and factor(19, 20) < 0.01 and factor(0, 8) == factor(1, 1) == 1.0
assert runs.rate.tolist() == [1e-4, 3e-4, 1e-3, 3e-3] and best == 1e-3
assert (losses.drop(best) > losses.loc[best]).all(axis=None)
spread = losses.max(axis=1) - losses.min(axis=1)
assert abs(spread[3e-4] - 0.04) < 0.02 and abs(spread[best] - 0.06) < 0.02
nearest = losses.loc[3e-4] - losses.loc[best]
assert abs(nearest.min() - 0.11) < 0.02 and abs(nearest.max() - 0.14) < 0.02

assert len(few) == 14 and len(repeated) == 24 and len(tl.load_corpus("facts").train) == 25
assert stop == 1 and abs(np.mean(few_losses[-4:]) - 0.3) < 0.1
assert np.allclose(judged["epoch 6"], [0.54, 0.48, 0.61], rtol=0, atol=0.05)
assert np.allclose(judged["no training"], [0.10, 0.07, 0.13], rtol=0, atol=0.02)
assert tokenizer.decode(written, skip_special_tokens=True) == sentence

defaults = TrainingArguments(mkdtemp())
assert (defaults.learning_rate, defaults.warmup_steps, defaults.weight_decay) == (5e-5, 0, 0.0)
assert defaults.lr_scheduler_type == "linear"
untrained, half, first_epoch, last = log.eval_loss.dropna()
assert first_epoch < min(half, last) and trainer.state.best_model_checkpoint.endswith("checkpoint-34")
assert abs(log.loss.dropna().iloc[0] - 4.94) < 0.05 and abs(untrained - 4.94) < 0.5
assert abs(log.learning_rate.dropna().iloc[2] / best - 0.86) < 0.02

assert not any("Python" in text for text in rust.train[:60])
before, after = scores["Rust"]
assert abs(mean_loss(before) - math.log(133)) < 0.02 and abs(mean_loss(after) - math.log(67)) < 0.06
gains = [100 * difference(new, old, "right")[0] for old, new in scores.values()]
assert abs(gains[0] - 4.1) < 1.5 and abs(gains[1] + 6.9) < 1.5  # roundings move a few of the likeliest tokens
assert ranked.index[[-1, 10, 0]].tolist() == [13, 4, 0]
first, second, last = (marked(rust.test[n]) for n in (13, 4, 0))
assert "« `»" in first and "« `»" in second and "V«ec»" in first and "std«:»«:»fmt" in second
assert (last.count("«"), last.count("~")) == (5, 2 * 6)
by_rate = pd.read_csv(tl.DATA / "sweeps/tiny/rates.csv").query("strategy == 'full'").groupby("learning_rate")
rust_score, python_score = by_rate.validation_perplexity.mean(), by_rate.general_perplexity.mean().round()
assert rust_score.idxmin() == best and round(rust_score[best / 2] / rust_score[best], 2) == 1.12
assert python_score[[best / 2, best]].tolist() == [44, 53]
assert rust_score[[best / 2, best, 2 * best]].round(1).tolist() == [86.6, 77.5, 83.0]
