vocabulary = base.model.config.get_text_config().vocab_size
assert before.low < before.perplexity < before.high < vocabulary

# after: check-study
if example:
    assert len(study.runs) == 2 + len(plan.strategies) * profile.seeds
