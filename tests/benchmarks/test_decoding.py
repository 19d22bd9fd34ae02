"""benchmarks.decoding: medians of rounds, medians of their ratios, and which races are run."""

import argparse
import json
import math
from types import SimpleNamespace

import tensorflow as tf

from benchmarks import decoding, ours_decoding, timing
from benchmarks.decoding import RACES, Measured, Race, is_chosen, median, print_table, ratios

OURS = [Measured([10, 40, 90], 300), Measured([30, 10, 90], 500), Measured([20, 20, 90], 400)]
# It failed in the second round, and at the last batch in every one.
RIVAL = [Measured([5, 10, 0], 70), Measured([0, 0, 0], 0), Measured([5, 40, 0], 90)]


def test_speeds_and_memory_are_medians_of_the_rounds():
    assert median(OURS) == Measured([20, 20, 90], 400)
    assert median(RIVAL)[0][:2] == [5, 25]
    assert median(RIVAL).mebibytes == 80
    assert math.isnan(median(RIVAL).speeds[2])


def test_ratios_are_medians_of_the_ratios_of_each_round():
    # 10 / 5 and 20 / 5; 40 / 10 and 20 / 40. Ratios of the medians are 20 / 5 and 20 / 25.
    first, second, third = ratios(OURS, RIVAL)
    assert (first, second) == (3, 2.25)
    assert math.isnan(third)


def test_the_table_has_what_is_asked_for_on_the_processor(capsys):
    race = Race("tiny", 1, "ours float32", "other", avx2=(3, 3, 3), avx512=(3.5, 2, 1))
    rounds = {("tiny", 1, "ours float32"): OURS, ("tiny", 1, "other"): RIVAL}
    for kind, line in (("AVX2", "3 / 3 / 3"), ("AVX-512", "3.5 / 2 / 1")):
        print_table([race], rounds, kind)
        printed = capsys.readouterr().out
        assert f"asked on {kind}" in printed
        assert f"3.00x     2.25x      nanx   {line}\n1 of 3 reached" in printed


def test_words_sizes_and_beams_choose_the_races():
    def chosen(only=None, sizes=("base", "tiny"), beams=(1, 4)):
        args = argparse.Namespace(only=only, sizes=sizes, beams=beams)
        return [race for race in RACES if is_chosen(race, args)]

    assert chosen() == RACES
    onnx = chosen(["ONNX"])
    assert {(race.size, race.beam) for race in onnx} == {
        (size, beam) for size in ("base", "tiny") for beam in (1, 4)
    }
    assert all("onnx" in race.ours for race in onnx)
    assert [race.rival for race in chosen(["int8"], beams=(1,))][0] == "CTranslate2 int8"
    assert {race.size for race in chosen(sizes=["tiny"])} == {"tiny"}


def test_the_best_setting_of_a_peer_counts_at_each_batch(monkeypatch):
    lines = [
        {"batch": batch, "tok_s": speed, "peak_rss_mb": peak}
        for batch, speed, peak in [(1, 9, 50), (8, 5, 60), (32, 7, 70), (1, 4, 80), (32, 8, 90)]
    ]
    monkeypatch.setattr(decoding, "peer", lambda *_: lines)
    found = decoding.measured(("base", 1, "KerasHub"), None, None)
    assert found == Measured([9, 5, 8], 90)


def test_a_contestant_that_fails_has_no_speed(monkeypatch, tmp_path):
    commands = []
    monkeypatch.setattr(
        decoding, "collect_lines", lambda command, *_: commands.append(command) or []
    )
    args = argparse.Namespace(seconds=1.0)
    found = decoding.measured(("tiny", 4, "ours onnx int8"), args, tmp_path)
    assert found == Measured([0, 0, 0], 0)
    jobs = [command[3] for command in commands]
    assert jobs == ["export-onnx", "time-onnx"]
    assert "int8" in commands[0]
    assert json.dumps(commands[1]).count("tiny-4-onnx-int8") == 1


def test_rooms_are_compared_with_the_smallest(monkeypatch, tmp_path, capsys):
    speeds = {32: 100, 128: 90, 512: 60}

    def ours(job, args, batches=()):
        if job[0] == "export":
            return []
        room = int(job[1].split("room-")[1].split("-")[0])
        return [
            {"batch": batch, "tokens_per_second": batch * speeds[room], "peak_mebibytes": room}
            for batch in batches
        ]

    monkeypatch.setattr(decoding, "ours", ours)
    decoding.run_rooms(argparse.Namespace(beams=[4], rounds=2), tmp_path)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split() == "beam 4 room 512 60 480 0.60x 0.60x 512 MiB".split()


def test_the_stages_of_a_start_are_medians(monkeypatch, tmp_path, capsys):
    found = iter([[], *([{"imports": seconds, "compilations": 0}] for seconds in (2.0, 9.0, 3.0))])
    monkeypatch.setattr(decoding, "ours", lambda *_: next(found))
    decoding.run_starts(argparse.Namespace(sizes=["tiny"], rounds=3), tmp_path)
    assert capsys.readouterr().out.splitlines()[-1].strip() == "imports:   3.00 s"


def test_two_exports_take_turns_and_their_ratio_is_printed(monkeypatch, capsys):
    called = []

    def load(name):
        answer = SimpleNamespace(numpy=lambda: called.append(name))
        return SimpleNamespace(search_ids=lambda ids: (None, answer))

    def interleaved(functions, seconds):
        for function in functions.values():
            function()
        return {0: 6.0, 1: 4.0}

    monkeypatch.setattr(tf.saved_model, "load", load)
    monkeypatch.setattr(timing, "interleaved", interleaved)
    args = SimpleNamespace(directory="old", other="new", batches=[1, 8], seconds=0.1)
    ours_decoding.time_in_turns(args)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert called == ["old", "new"] * 2
    assert lines == [{"batch": batch, "milliseconds": [6.0, 4.0], "ratio": 1.5} for batch in (1, 8)]
