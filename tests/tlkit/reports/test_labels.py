"""Labels move as little as they must, and sentences claim as much as they may."""

from tlkit.reports.findings import listed, number, short


def test_numbers_are_written_as_people_say_them():
    values = (0.0123, 4.6, 72.28, 126.2, 4096, 4_036_800, 6_738_415_616)
    assert [number(value) for value in values] == [
        "0.0123",
        "4.6",
        "72.3",
        "126",
        "4,096",
        "4.04 million",
        "6.74 billion",
    ]
    brief = [short(value) for value in (0, 384, 27_648, 999_999, 4_036_800, 7e9)]
    assert brief == ["0", "384", "27.6k", "1M", "4.04M", "7B"]


def test_a_few_are_named_and_many_are_counted():
    assert [listed("abcd"[:count]) for count in range(5)] == ["", "a", "a and b", "a, b and c", "4 others"]
