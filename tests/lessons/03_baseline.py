assert len(rust.train) + len(rust.validation) + len(rust.test) == 631
assert not leaked(held_out, rust.train)
assert almost not in rust.validation and leaked([almost], rust.validation)

assert 0.9 < after["leaked"][1] / after["honest"][1] < 1.1
assert after["leaked"][0] < 6

assert math.isclose(library.perplexity, by_hand, rel_tol=1e-5)
assert math.isclose(loss.exp().item(), by_hand, rel_tol=1e-5)

# The mean of perplexities is well above the token-weighted one; documents of other lengths shift the mean by document.
assert all(by_mean > 1.07 * by_token for by_token, _, by_mean in ways.values())
shift = {name: abs(by_document / by_token - 1) for name, (by_token, by_document, _) in ways.items()}
assert shift["Python reference"] > 2 * shift["Rust"] and shift["Rust"] < 0.01
of_rust = document_losses(on_rust)
assert math.exp(max(of_rust)) > 320 and math.exp(min(of_rust)) < 70

# Each step of the windows gave more context, and a better score.
assert list(by_window.values()) == sorted(by_window.values(), reverse=True)
assert round(100 * (by_window[32, 32] / by_window[256, 256] - 1)) == 23
assert 0.03 < 1 - by_window[256, 128] / by_window[256, 256] < 0.04
assert int(blocks[0, 0]) == end_of_text

assert vocabulary < control.perplexity < 1.1 * vocabulary
ends_in_nats = draws_of(len(nats)).log().quantile(ends)
assert torch.allclose(ends_in_nats.exp(), torch.tensor([on_rust.low, on_rust.high], dtype=torch.float64))
assert round(low) == round(on_rust.low) and round(high) == round(on_rust.high)
assert all(math.isclose(result.low, result.high) for result in single)  # one passage can be drawn in one way only

assert 4 * byte_perplexity < on_rust.perplexity
assert on_rust.perplexity > 3 * on_general.perplexity and on_rust.low > on_general.high
assert 1 < on_rust.bits_per_byte / on_general.bits_per_byte < 2
assert round(per_token["Rust"]) == 3 and round(per_token["Python reference"]) == 4

if profile.name == "ci":  # other profiles score more documents
    assert 132 < on_rust.perplexity < 134 and 4_230 < control.perplexity < 4_270
    assert round(frequencies) == 667 and round(on_general.perplexity) == 39
    by_losses = on_general.nats_per_token / on_rust.nats_per_token * on_rust.bits_per_byte
    found = (on_rust.bits_per_byte, on_general.bits_per_byte, by_losses)
    assert [round(bits, 2) for bits in found] == [2.22, 1.33, 1.66]

# after: check-losses
assert 84.5 < by_hand < 85.5 and len(losses) == 170
surprise = dict(zip(pieces, losses[:32].tolist(), strict=True))
assert max(surprise[piece] for piece in (",", " the", " and", "ved")) < 1.2
assert max(surprise, key=surprise.get) == "new" and surprise[" mo"] > 5

# after: check-counts
share = counts.topk(300).values.sum() / counts.sum()
assert share > 0.5  # of the text, by the 300 most frequent tokens
