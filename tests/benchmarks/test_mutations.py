"""The planted faults: each has its place in the package, and the tests that find it are counted."""

import pytest

from benchmarks import mutations


def read_source(fault):
    return (mutations.REPOSITORY / mutations.PACKAGE / fault.file).read_text(encoding="utf-8")


@pytest.mark.parametrize("fault", mutations.FAULTS, ids=lambda fault: fault.name)
def test_each_fault_has_its_place_and_is_python(fault):
    compile(mutations.plant(fault, read_source(fault)), fault.file, "exec")
    assert fault.tests.split()
    for path in fault.tests.split():
        assert (mutations.REPOSITORY / path).exists(), path


def test_a_fault_without_a_place_is_refused():
    fault = mutations.FAULTS[0]._replace(old="no such text")
    with pytest.raises(ValueError, match="must hold the text of .* once. Received: 0 times"):
        mutations.plant(fault, read_source(fault))


def test_found_and_not_found_faults_are_told_apart_and_not_run_again(tmp_path, monkeypatch, capsys):
    runs = []

    def run(copy, tests):
        file = copy / mutations.PACKAGE / mutations.FAULTS[0].file
        runs.append(mutations.FAULTS[0].new in file.read_text(encoding="utf-8"))
        return "FAILED tests/test_a.py::test_b" if runs == [True] else None

    monkeypatch.setattr(mutations, "failing_test", run)
    monkeypatch.setattr(mutations, "FAULTS", mutations.FAULTS[:2])
    for _ in range(2):
        monkeypatch.setattr("sys.argv", ["mutations", "--output", str(tmp_path)])
        mutations.main()
        assert runs == [True, False]
        assert capsys.readouterr().out.endswith("by no test\nfound 1 of 2\n")
    monkeypatch.setattr("sys.argv", ["mutations", "--output", str(tmp_path), "--whole"])
    mutations.main()
    assert runs == [True, False, False]
