def differ(ours, theirs):
    """The largest difference, as a share of the largest number."""
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


assert len(vocabulary) == 4096 and ids.shape == (1, 22)
places = [place for place, word in enumerate(words) if word == " argument"]
assert torch.equal(x[0, places[0]], x[0, places[1]])

assert differ(norm(x, block.input_layernorm.weight), block.input_layernorm(x)) < 1e-5
assert differ(products.diagonal(-3), products[3, :1]) < 1e-5
assert differ(products.diagonal(-10), products[10, :1]) < 1e-5
assert torch.allclose(weights.sum(-1), torch.ones(1, 4, 22))
near = weights[0, 2].tril() - weights[0, 2].tril(-4)  # itself and three before
assert near.sum(-1).mean() > 0.5
of_mlp, of_block = (sum(p.numel() for p in part.parameters()) for part in (block.mlp, block))
assert (of_mlp, of_block) == (294_912, 406_272)

assert differ(after_block, library.hidden_states[1]) < 1e-5
pairs = zip(depths[:8], library.hidden_states[:8], strict=True)
assert max(differ(ours, theirs) for ours, theirs in pairs) < 1e-4
assert sizes == sorted(sizes)

assert whole + 0.3 < removed < math.log(2)  # still more likely than all other tokens together
assert abs(loss_of_place(again) - whole) < 1e-6

assert model.get_output_embeddings().weight is table
assert [vocabulary[token] for token in likely.indices] == [" argument", " is", " parameter"]
assert ids[0, of_second + 1] == likely.indices[0] and round(float(100 * likely.values[0])) == 86
assert 0.08 < likely.values[1:].sum() < 0.1

assert 4.3 < perplexity < 4.5 and abs(score.perplexity - perplexity) < 1e-3
assert abs(F.cross_entropy(logits[0, :-1], answers) - mean) < 1e-4
assert {" first", " directory"} <= {words[1 + place] for place in losses.topk(3).indices}
assert all(2.7 < losses[words.index(word) - 1] < 5.2 for word in (" first", " file", " directory", "."))
assert losses[words.index(" of") - 1] < 0.2
half = words.index(",")
assert losses[half:].mean() < losses[:half].mean()

assert continued == tl.generate(model, tokenizer, [prompt], new_tokens=8)[0]

assert by_depth[0] > 20  # at the embedding it is far worse than guessing
gains = [lower - upper for lower, upper in itertools.pairwise(by_depth[1:])]
assert max(gains) == gains[-1]

assert len(batches) == 20 and values == 4_036_800
assert clipped(shorter)[1] < 1.0001 < length
assert rate_at(3, 20) == rate_at(4, 20) == 1e-3

assert log.gradient_norm.between(3, 4.5).all()
assert log.loss[:5].mean() - 0.6 < log.loss[15:].mean() < log.loss[:5].mean()
assert abs(distance.abs()[0] - 1) < 1e-3 and distance[10:].abs().max() < 1
assert sum(one != other for one, other in itertools.pairwise(signs)) > 4
assert apart(pd.Series(written), log.loss[:10]) < 1e-4
assert other.get_last_lr() == [0.0]

assert 0.1 < across.mean() < 0.25
evenly = sum(80 / (place + 1) for place in range(82, 102)) / 20
assert round(evenly, 2) == 0.87 and across[1:].max() < across[0] < 0.8

of_all_20 = (cases["another document, border"] - alone).mean()
assert abs(of_all_20) < 0.05 and round(abs(of_all_20.item()), 2) == 0.03
assert 7.5 < first["another document, no border"] < 8.5
assert -1.0 < change["the same document, no border"] < -0.85

# after: check-heads
assert words[again] == " argument" and words[of_first + 1] == " is"
copying = looks[7][0, 0]
assert copying[again].argmax() == of_first + 1 and copying[again, of_first + 1] > 0.5
assert copying[of_second].argmax() == of_first and copying[of_second, of_first] > 0.8
assert looks[6][0, 1].diagonal(-1)[1:].mean() > 2 / 3  # on average, on the token before

# after: check-lens
hits = by_depth[:, :-1].argmax(-1) == ids[0, 1:]
assert hits[1:, words.index(" of")].all()
assert hits[1:, 18].all() and words[18] == " of"  # the one in the picture
assert hits[:, of_second - 1].tolist() == [False] * 8 + [True]
