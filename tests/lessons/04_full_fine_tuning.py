assert factor(0, 20) == 0.5 and factor(2, 20) == 1.0 and factor(19, 20) < 0.01
assert runs.rate.tolist() == [1e-4, 3e-4, 1e-3, 3e-3] and best == 1e-3 and len(batches_of(short, 0)) == 8

assert 0.09 < spread.max() < 0.15, "up to 0.12"
nearest = worse_by.mean(axis=1).idxmin()
assert nearest == 3e-4
assert abs(worse_by.loc[nearest].min() - 0.11) < 0.02 and abs(worse_by.loc[nearest].max() - 0.14) < 0.02

record = pd.read_csv(tl.DATA / "sweeps/tiny/rates.csv").query("strategy == 'full'")
by_rate = record.groupby("learning_rate").validation_perplexity.mean()
assert record.learning_rate.nunique() == 8 and by_rate.idxmin() == best
assert by_rate[[0.0005, 0.001, 0.002, 0.01, 0.02]].round().tolist() == [87, 78, 83, 271, 3396]
assert factor(0, 8) == 1.0

assert abs(train_losses[0] - before) < 0.4 and abs(math.log(254_801) - 12.4) < 0.1
assert len(few) == 14 and len(repeated) == 24 and len(tl.load_corpus("facts").train) == 25

assert stop == 1
change, low, high = np.array(judged).T
assert abs(change[-1] - 0.54) < 0.05 and abs(low[-1] - 0.48) < 0.05 and abs(high[-1] - 0.61) < 0.05
assert abs(change[0] - 0.10) < 0.02 and low[0] > 0 and (low[2:] > 0).all()
assert np.mean(few_losses[-4:]) < 0.5

assert AutoModelForCausalLM.from_pretrained(tl.BUNDLED).dtype == torch.float16, "the file is in fp16"
defaults = TrainingArguments(mkdtemp())
assert (defaults.learning_rate, defaults.warmup_steps, defaults.weight_decay) == (5e-5, 0, 0.0)
assert defaults.lr_scheduler_type == "linear"
assert trainer.create_scheduler(24).lr_lambdas[0](0) == 0, "the first step of the warm-up changes nothing"
evaluations = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
assert len(evaluations) == 2 and evaluations[0] < evaluations[1]
assert trainer.state.best_model_checkpoint.endswith("checkpoint-4")
assert -0.17 < gain[0] < -0.05 and gain[2] < 0
facts = " ".join(tl.load_corpus("facts").train)
said = [one.generate(**prompt, max_new_tokens=30, do_sample=False)[0] for one in (untouched, model, kept)]
recited = [tokenizer.decode(ids, skip_special_tokens=True) in facts for ids in said]
assert recited == [False, True, False], "the last model recites a training sentence, the other two do not"
