almost = rust.validation[0].replace("Box::new(value)", "Box::new(v)")
assert almost not in rust.validation and leaked([almost], rust.validation)

assert after["leaked"][0] < 6

assert max(surprise, key=surprise.get) == "new" and surprise[" mo"] > 5

assert round(100 * (by_window[32, 32] / by_window[256, 256] - 1)) == 23
assert 0.03 < 1 - by_window[256, 128] / by_window[256, 256] < 0.04

assert int(blocks[0, 0]) == end_of_text

assert round(per_token["Rust"]) == 3 and round(per_token["Python reference"]) == 4

# after: check-losses
assert 84.5 < by_hand < 85.5 and len(losses) == 170

# after: check-math
assert math.exp(max(own)) > 320 and math.exp(min(own)) < 70

# after: check-counts
if profile.name == "ci":  # other profiles score more documents
    assert 132 < on_rust.perplexity < 134 and 4_230 < control.perplexity < 4_270
    assert round(frequencies) == 667
share = counts.topk(300).values.sum() / counts.sum()
assert share > 0.5  # of the text, by the 300 most frequent tokens
