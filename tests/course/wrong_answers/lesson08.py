"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""


def _in_place(weight, a, b, alpha):
    weight += alpha / len(a) * (b @ a)
    return weight


WRONG = {
    "ex08_1": [
        (139, "still has fewer"),
        (98_304 / 704, "a whole number"),
        (192, "can be any matrix"),
        (193, "one of the two thin matrices"),
        (513, "one of the two thin matrices"),
        (18, "a rank is asked for"),
        (150, "not the first such rank"),
        (9, "fewer values than the matrix"),
    ],
    "ex08_2": [
        (lambda weight, a, b, alpha: weight + b @ a, "without alpha/r"),
        (lambda weight, a, b, alpha: weight + alpha * (b @ a), "not yet divided by the rank"),
        (lambda weight, a, b, alpha: weight + len(a) / alpha * (b @ a), "upside down"),
        (lambda weight, a, b, alpha: alpha / len(a) * (b @ a), "the weight itself is missing"),
        (lambda weight, a, b, alpha: weight + alpha / len(a) * (a @ b), "your function stopped with RuntimeError"),
        (lambda weight, a, b, alpha: weight.T + alpha / len(a) * (b @ a).T, "not that of the weight"),
        (_in_place, "written into the weight that was given"),
    ],
    "ex08_3": [
        (lambda table: list(table.tensor[table.declared & ~(table.norm_1 > 0)]), "a healthy A is in the list"),
        (
            lambda table: list(table.tensor[~((table.norm_1 > 0) | (table.norm_2 > 0))]),
            "frozen tensors are in the list",
        ),
        (lambda table: list(table.tensor[(table.norm_1 == 0) & (table.norm_2 == 0)]), "NaN, not zero"),
        (lambda table: list(table.tensor[table.declared & table.norm_1.isna()]), "zero in both steps"),
        (lambda table: list(table.tensor[table.declared & ~(table.norm_2 > 0)]), "did receive a gradient"),
        (lambda table: table.declared & table.norm_1.isna(), "no name from the column"),
    ],
}
