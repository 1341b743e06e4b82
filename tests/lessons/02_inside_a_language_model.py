assert len(vocabulary) == 4096 and ids.shape == (1, 22)

assert (of_mlp, of_block) == (294_912, 406_272)

assert words[again] == " argument" and words[of_first + 1] == " is"
assert copying[of_second].argmax() == of_first and copying[of_second, of_first] > 0.8

assert model.get_output_embeddings().weight is table

assert likely == [" argument", " is", " parameter"] and round(float(100 * sure)) == 86
assert 0.08 < probabilities[of_second].topk(3).values[1:].sum() < 0.1

assert 4.3 < perplexity < 4.5

assert {" first", " directory"} <= costly
assert all(2.7 < losses[words.index(word) - 1] < 5.2 for word in (" first", " file", " directory", "."))
assert losses[words.index(" of") - 1] < 0.2
half = words.index(",")
assert losses[half:].mean() < losses[:half].mean()

assert hits[1:, 18].all() and words[18] == " of"  # the one in the picture

assert by_depth[0] > 20  # at the embedding it is far worse than guessing

assert len(batches) == 20

assert rate_at(3, 20) == rate_at(4, 20) == 1e-3

assert log.gradient_norm.between(3, 4.5).all()
assert log.loss[:5].mean() - 0.6 < log.loss[15:].mean() < log.loss[:5].mean()

signs = moments.gradient > 0
assert (signs != signs.shift()).sum() > 5

assert round(evenly, 2) == 0.87 and across[1:].max() < across[0] < 0.8

assert round(abs(all_20.item()), 2) == 0.03
assert 7.5 < first["another document, no border"] < 8.5
assert -1.0 < change["the same document, no border"] < -0.85

# after: check-torch
assert torch.allclose(weights.sum(-1), torch.ones(1, 4, 22))

# after: check-math
assert removed < math.log(2)  # still more likely than all other tokens together
assert abs(loss_of_place(again) - whole) < 1e-6

# after: check-values
assert values == 4_036_800

# after: check-length
assert clipped(shorter)[1] < 1.0001 < length
