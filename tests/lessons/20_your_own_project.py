assert datasheet.loc["documents"].tolist() == [60, 40, 40] and not any(shared.values())
assert 4 < detectable(40) < 6.5
assert difference.high < -plan["worthwhile"]
assert forgotten["max"]["full"] < plan["may_forget"]
assert forgotten["mean"]["lora"] > forgotten["mean"]["full"]
table = comparison.table.set_index("strategy").perplexity
assert (table[plan["strategies"]] < table["zero-shot"] / 2).all() and table[tl.CONTROL] > table["zero-shot"]
