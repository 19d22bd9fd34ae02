from tests.selection import spread


def test_each_value_is_tried_and_the_other_combinations_are_slow():
    cases = spread("abcde", [0, 1, 2])
    assert len({case.values for case in cases}) == 15
    tried = [case.values for case in cases if not case.marks]
    assert tried == [("a", 0), ("b", 1), ("c", 2), ("d", 0), ("e", 1)]
