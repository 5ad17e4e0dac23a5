"""The command line, run as users run it: real files, stdin, a subprocess, exit codes and widths."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vime_schedule import Calibration, ParallelLayout, Schedule, TokenBudget, build_dp_schedule, calibrate
from vime_schedule._cli import main
from vime_schedule._cli._constraints import shaped_micro_batches
from vime_schedule._cli._costs import dump_calibration, load_calibration
from vime_schedule._cli._tables import Column, table_lines
from vime_schedule._render._text import plain

Run = Callable[..., subprocess.CompletedProcess[str]]
COMMANDS = ("plan", "report", "explain", "compare", "simulate", "what-if", "calibrate")
PLAN_OPTIONS = ("--dp", "4", "--pp", "2", "--vpp", "2", "--max-tokens-per-gpu", "4096")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the command in a directory of its own."""

    def call(
        *arguments: str, stdin: str = "", columns: int = 80, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "vime_schedule", *arguments],
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": str(columns), "PYTHONIOENCODING": "utf-8"} | environment,
            timeout=120,
        )

    return call


@pytest.fixture
def lengths(tmp_path: Path) -> list[int]:
    """128 samples in `lengths.csv`, two to a rollout, one above the budget of PLAN_OPTIONS."""
    rng = random.Random(0)
    prompts = [rng.randint(20, 300) for _ in range(128)]
    responses = [min(3500, int(rng.lognormvariate(6, 1)) + 1) for _ in range(127)] + [5000]
    rows = [f"{p},{r},{i // 2}" for i, (p, r) in enumerate(zip(prompts, responses, strict=True))]
    (tmp_path / "lengths.csv").write_text("prompt_tokens,response_tokens,rollout_id\n" + "\n".join(rows) + "\n")
    return [p + r for p, r in zip(prompts, responses, strict=True)]


@pytest.fixture
def plan(run: Run, lengths: list[int], tmp_path: Path) -> Schedule:
    """The plan of `lengths` in `plan.json`."""
    done = run("plan", "lengths.csv", *PLAN_OPTIONS, "-o", "plan.json")
    assert (done.returncode, done.stderr) == (0, "wrote plan.json\n")
    return Schedule.from_json((tmp_path / "plan.json").read_text())


def test_plan_is_the_library_s_plan(run: Run, lengths: list[int], plan: Schedule) -> None:
    expected = build_dp_schedule(
        lengths,
        layout=ParallelLayout(dp=4, pp=2, vpp=2),
        batching=TokenBudget(max_tokens_per_gpu=4096),
        global_batch_size=64,
        rollout_ids=[str(i // 2) for i in range(128)],
    )
    assert plan == expected
    assert Schedule.from_json(run("plan", "lengths.csv", *PLAN_OPTIONS, "--json").stdout) == expected


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("300 100\n200\n\n400", ()),
        ("300,100,200,400", ()),
        ("[300, 100, 200, 400]", ()),
        ('[{"length": 300}, {"length": 100}, {"length": 200}, {"length": 400}]', ()),
        ('{"total_lengths": [300, 100, 200, 400]}', ()),
        ('{"tokens": 300}\n{"tokens": 100}\n\n{"tokens": 200}\n{"tokens": 400}\n', ()),
        ('{"prompt_length": 299, "response_length": 1}\n' + '{"prompt_length": 99, "response_length": 1}\n'
         '{"prompt_length": 199, "response_length": 1}\n{"prompt_length": 399, "response_length": 1}', ()),
        ("a,b,name\n200,100,x\n50,50,y\n199,1,z\n300,100,w\n", ("--length-field", "a+b")),
        ("﻿length\n300\n100\n200\n400\n", ()),
        ("\n".join(json.dumps({"input_ids": [0] * n}) for n in (300, 100, 200, 400)), ()),
    ],
    ids=["lines", "commas", "array", "objects", "columns", "jsonl", "pairs", "csv", "bom", "token-lists"],
)  # fmt: skip
def test_every_input_format_from_stdin(run: Run, text: str, options: tuple[str, ...]) -> None:
    done = run("plan", "-", "--dp", "2", "--micro-batch-size", "2", "--json", *options, stdin=text)
    assert done.stderr == ""
    assert Schedule.from_json(done.stdout).total_lengths == (300, 100, 200, 400)


def test_rollout_ids_are_read_and_kept_together(run: Run) -> None:
    text = "".join(json.dumps({"length": 10, "rollout_id": name}) + "\n" for name in "abab")
    options = ("--dp", "1", "--micro-batch-size", "1", "--global-batch-size", "1", "--json")
    done = run("plan", "-", *options, stdin=text)
    steps = Schedule.from_json(done.stdout).steps
    assert [sorted(p for rank in step.micro_batches for mb in rank for p in mb) for step in steps] == [[0, 2], [1, 3]]


def test_signatures_are_read_and_kept_apart(run: Run) -> None:
    text = "".join(json.dumps({"length": 5, "kind": kind}) + "\n" for kind in ("text", "image") * 4)
    options = ("--dp", "2", "--max-tokens-per-gpu", "10", "--signature-field", "kind", "--json")
    plan = Schedule.from_json(run("plan", "-", *options, stdin=text).stdout)
    kinds = [[{p % 2 for p in members} for members in rank] for rank in plan.steps[0].micro_batches]
    assert kinds[0] == kinds[1]
    assert all(len(kind) == 1 for kind in kinds[0])


def test_the_longest_micro_batch_may_run_first(run: Run) -> None:
    text = " ".join(map(str, range(1, 33)))
    options = ("--pp", "4", "--max-tokens-per-gpu", "60", "--micro-batch-order", "longest_first", "--json")
    plan = Schedule.from_json(run("plan", "-", *options, stdin=text).stdout)
    tokens = [sum(plan.total_lengths[p] for p in members) for members in plan.steps[0].micro_batches[0]]
    assert tokens[0] == max(tokens)


def test_global_batch_sizes_may_differ(run: Run) -> None:
    done = run("plan", "-", "--micro-batch-size", "1", "--global-batch-size", "3,1", "--json", stdin="1 2 3 4")
    assert [step.global_batch_size for step in Schedule.from_json(done.stdout).steps] == [3, 1]


def test_lengths_up_to_2_to_the_53(run: Run) -> None:
    done = run("plan", "-", "--max-tokens-per-gpu", str(2**53), "--json", stdin=f"{2**53} 1 {2**52}")
    assert Schedule.from_json(done.stdout).total_lengths == (2**53, 1, 2**52)


def test_plan_prints_figures_and_a_bar_per_rank(run: Run, lengths: list[int], plan: Schedule) -> None:
    done = run("plan", "lengths.csv", *PLAN_OPTIONS)
    total = plan.report().total
    assert plan.fingerprint[:12] in done.stdout
    assert f"{total.imbalance:.4f}" in done.stdout
    assert "1 sample above the budget, each alone in its micro-batch: 127." in done.stdout
    bars = [line for line in done.stdout.splitlines() if line.startswith("rank")]
    assert len(bars) == 4
    assert sum("100.0%" in line for line in bars) >= 1


def test_report_has_every_figure_of_the_library(run: Run, plan: Schedule) -> None:
    done = run("report", "plan.json", "--json", "--lengths", "lengths.csv")
    printed = json.loads(done.stdout)
    report = plan.report()
    assert printed["fingerprint"] == plan.fingerprint
    assert printed["total"] == {name: getattr(report.total, name) for name in report.total.__dataclass_fields__}
    assert len(printed["steps"]) == 1
    assert f"{report.total.lockstep:.4f}" in run("report", "plan.json").stdout


def test_report_refuses_other_lengths(run: Run, plan: Schedule, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("\n".join("7" for _ in range(128)))
    done = run("report", "plan.json", "--lengths", "other.txt")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_explain_gives_every_reason_and_a_row_per_micro_batch(run: Run, plan: Schedule) -> None:
    step = plan.steps[0]
    done = run("explain", "plan.json", "--rank", "1")
    assert f"M = {step.num_micro_batches} micro-batches per rank" in done.stdout
    words = " ".join(done.stdout.split())
    for reason in step.reasons:
        assert " ".join(f"{reason.rule} -> {reason.micro_batches}: {reason.why}".split()) in words
    table = done.stdout.split("rank 1\n")[1].strip().splitlines()[1:]
    assert [row.split()[0] for row in table] == [str(m) for m in range(step.num_micro_batches)]
    printed = json.loads(run("explain", "plan.json", "--json").stdout)["steps"][0]
    assert len(printed["bounded"]) == 4 * step.num_micro_batches
    assert [item["shaped_by"] for item in printed["bounded"]].count("oversize") == 1


def test_explain_names_what_bounded_each_micro_batch() -> None:
    plan = build_dp_schedule(
        [14, 8, 6, 4, 4, 3],
        layout=ParallelLayout(dp=2, pp=2, vpp=2),
        batching=TokenBudget(max_tokens_per_gpu=10),
        global_batch_size=6,
        shortage="fill",
    )
    bounded = {
        tuple(sorted(plan.total_lengths[p] for p in plan.steps[0].micro_batches[item.rank][item.index])): item.shaped_by
        for item in shaped_micro_batches(plan, 0, [0, 1])
    }
    assert bounded == {(14,): "oversize", (8,): "full", (4, 6): "full", (3, 4): "balanced"}


@given(
    st.lists(st.lists(st.text("abc", max_size=9), min_size=4, max_size=4), max_size=4),
    st.lists(st.integers(0, 5), min_size=4, max_size=4),
    st.integers(9, 60),
)
def test_tables_show_whole_cells_of_the_columns_that_fit(rows: list[list[str]], ranks: list[int], width: int) -> None:
    columns = [Column(f"T{index}", rank) for index, rank in enumerate(ranks)]
    title, *lines = [plain(line) for line in table_lines(columns, rows, width)][: 1 + len(rows)]
    shown = [index for index in range(4) if f"T{index}" in title]
    assert shown
    for row, line in zip(rows, lines, strict=True):
        assert line.split() == [row[index] for index in shown if row[index]]
        assert len(line) <= width
    sizes = [max(2, *(len(row[index]) for row in rows)) if rows else 2 for index in range(4)]
    hidden = [index for index in range(4) if index not in shown]
    if hidden:
        first = min(hidden, key=lambda index: (ranks[index], index))
        assert sum(sizes[index] + 2 for index in [*shown, first]) - 2 > width


def test_explain_says_why_there_are_not_fewer_or_more(run: Run, plan: Schedule) -> None:
    step = plan.steps[0]
    assert step.num_micro_batches == 8
    fewer = json.loads(run("explain", "plan.json", "--why-not", "2", "--json").stdout)["steps"][0]["why_not"]
    first = next(reason for reason in step.reasons if reason.micro_batches > 2)
    assert fewer == f"M = 2 is too few, since {first.rule} needs {first.micro_batches}: {first.why}."
    assert "M = 9 is not legal" in run("explain", "plan.json", "--why-not", "9").stdout
    assert "M = 10 is possible, but M = 8 serves" in run("explain", "plan.json", "--why-not", "10").stdout
    assert "it has M = 8." in run("explain", "plan.json", "--why-not", "8").stdout


def test_explain_of_a_count_that_was_raised_because_it_pays(run: Run) -> None:
    text = " ".join(map(str, [900] + [100] * 10))
    done = run("plan", "-", "--dp", "1", "--pp", "8", "--max-tokens-per-gpu", "1900", "--objective", "pipeline",
               "--json", stdin=text)  # fmt: skip
    reasons = Schedule.from_json(done.stdout).steps[0].reasons
    assert reasons[-1].rule == "cheaper"
    asked = run("explain", "-", "--why-not", str(reasons[-1].micro_batches - 1), stdin=done.stdout).stdout
    assert f"M = {reasons[-1].micro_batches - 1} would do, but" in asked


def test_wide_text_columns_and_odd_line_separators_are_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text('prompt,length\n"' + "x" * 200_000 + '\nsecond line",300\nshort,200\n')
    (tmp_path / "odd.jsonl").write_text('{"prompt": "a\u2028b\x85c", "length": 300}\n{"length": 200}\n', "utf-8")
    for name in ("wide.csv", "odd.jsonl"):
        done = run("plan", name, "--micro-batch-size", "1", "--json")
        assert done.stderr == ""
        assert Schedule.from_json(done.stdout).total_lengths == (300, 200)


def test_compare_lists_objectives_and_baselines(run: Run, lengths: list[int]) -> None:
    printed = json.loads(run("compare", "lengths.csv", *PLAN_OPTIONS, "--json").stdout)
    by_name = {entry["name"]: entry for entry in printed}
    assert list(by_name) == ["balanced", "step", "lockstep", "pipeline", "first-fit", "ffd", "karmarkar-karp"]
    ours = [by_name[name] for name in ("balanced", "step", "lockstep", "pipeline")]
    assert all(entry["over_budget"] == 0 for entry in [*ours, by_name["first-fit"], by_name["ffd"]])
    assert min(entry["makespan"] for entry in ours) <= by_name["first-fit"]["makespan"]
    text = run("compare", "lengths.csv", *PLAN_OPTIONS).stdout
    assert all(name in text for name in by_name)


def test_compare_says_why_a_baseline_cannot(run: Run) -> None:
    done = run("compare", "-", "--dp", "4", "--max-tokens-per-gpu", "10", "--shortage", "fill", stdin="9 9 9 9 9")
    assert done.returncode == 0
    assert "first-fit cannot: 5 samples cannot fill 8 micro-batches: this baseline knows no fillers." in " ".join(
        done.stdout.split()
    )


def test_simulate_draws_every_stage_and_gives_every_slot(run: Run, plan: Schedule, tmp_path: Path) -> None:
    done = run("simulate", "plan.json", "--svg", "t.svg", "--html", "t.html")
    assert [line.split("│")[0].strip() for line in done.stdout.splitlines() if "│" in line] == ["stage 0", "stage 1"]
    assert (tmp_path / "t.svg").read_text().startswith("<svg")
    assert (tmp_path / "t.html").read_text().startswith("<!DOCTYPE html>")
    printed = json.loads(run("simulate", "plan.json", "--json").stdout)
    assert printed["makespan"] == pytest.approx(plan.report().total.makespan)
    assert all(len(stage["slots"]) == 4 * plan.steps[0].num_micro_batches for stage in printed["stages"])
    inference = json.loads(run("simulate", "plan.json", "--json", "--forward-only").stdout)
    assert inference["makespan"] < printed["makespan"] / 2


def test_what_if_sweeps_and_sorts_by_time(run: Run, lengths: list[int]) -> None:
    options = ("--dp", "2,4", "--pp", "1,2", "--vpp", "1,2", "--max-tokens-per-gpu", "4096,8192")
    printed = json.loads(run("what-if", "lengths.csv", *options, "--json").stdout)
    assert len(printed) == 16
    ran = [entry for entry in printed if entry["failed"] is None]
    assert len(ran) == 12  # vpp 2 needs pp above 1
    assert [entry["time"] for entry in ran] == sorted(entry["time"] for entry in ran)
    assert all(0 < entry["efficiency"] <= 1 + 1e-9 for entry in ran)
    assert all("vpp=2 needs a pipeline" in entry["failed"] for entry in printed[12:])
    assert "cannot run: vpp=2 needs a pipeline" in run("what-if", "lengths.csv", *options).stdout


def test_calibrate_fits_writes_and_plans_with_the_fit(run: Run, lengths: list[int], tmp_path: Path) -> None:
    rng = random.Random(1)
    log = [[rng.randint(1, 6000) for _ in range(rng.randint(1, 5))] for _ in range(40)] + [[1, 6000]]
    entries = [{"lengths": row, "seconds": 0.01 + sum(2e-6 * s + 1e-10 * s * s for s in row)} for row in log]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, entries)))
    rows = [f"{' '.join(map(str, entry['lengths']))},{entry['seconds']!r}" for entry in entries]  # type: ignore[call-overload]
    (tmp_path / "log.csv").write_text("lengths,seconds\n" + "\n".join(rows))
    done = run("calibrate", "log.jsonl", "-o", "cost.json")
    assert "R^2 1.0000 over 41 micro-batches" in done.stdout
    fit = json.loads(run("calibrate", "log.csv", "--json").stdout)
    assert fit == json.loads((tmp_path / "cost.json").read_text())
    assert (fit["linear"], fit["quadratic"]) == (pytest.approx(2e-6), pytest.approx(1e-10))
    assert run("plan", "lengths.csv", *PLAN_OPTIONS, "--cost", "measured:cost.json").returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_fits_the_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert f"  vime-schedule {command} " in text.split("examples:")[1]
    assert max(map(len, text.splitlines())) <= 80


def test_top_help_names_every_command(run: Run) -> None:
    text = run("--help").stdout
    assert all(f"\n    {command} " in text for command in COMMANDS)
    assert "Exit codes" in text


@pytest.mark.parametrize("columns", [40, 60, 80, 132])
def test_every_output_fits_the_terminal(
    plan: Schedule, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    options = ("lengths.csv", *PLAN_OPTIONS)
    sweep = ("--dp", "2,4", "--pp", "1,2", "--vpp", "1,2", "--max-tokens-per-gpu", "4096")
    commands = [("plan", *options), ("report", "plan.json"), ("explain", "plan.json"), ("compare", *options)]
    for arguments in [*commands, ("simulate", "plan.json"), ("what-if", "lengths.csv", *sweep)]:
        assert main(arguments) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= columns, arguments


def test_output_survives_an_ascii_terminal(run: Run, plan: Schedule) -> None:
    done = run("report", "plan.json", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "rank 0 |#" in done.stdout


def test_a_reader_that_goes_away_is_no_traceback(run: Run, plan: Schedule, tmp_path: Path) -> None:
    command = f"{sys.executable} -m vime_schedule explain plan.json --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=60)
    assert (done.stdout, done.stderr) == ("{", "")


def test_a_terminal_shows_what_a_pipe_gets(run: Run, plan: Schedule, tmp_path: Path) -> None:
    piped = run("report", "plan.json", FORCE_COLOR="1").stdout
    assert "\x1b[" not in piped
    main_end, child_end = pty.openpty()
    environment = os.environ | {"COLUMNS": "80", "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "vime_schedule", "report", "plan.json"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=child_end) as process:
        os.close(child_end)
        shown = b""
        with contextlib.suppress(OSError):  # Linux ends a pseudo-terminal with EIO
            while block := os.read(main_end, 4096):
                shown += block
    os.close(main_end)
    assert process.returncode == 0
    visible = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")
    assert [line.rstrip() for line in visible.splitlines()] == piped.splitlines()


def test_version(run: Run) -> None:
    name, version = run("--version").stdout.split()
    assert name == "vime-schedule"
    assert version.count(".") == 2


FILES = {
    "quote.csv": 'length\n5\n"6"7\n',
    "digits.txt": "9" * 5000,
    "deep.json": "[" * 100_000,
    "nothing.csv": "prompt_tokens,response_tokens\n5,0\n0,0\n",
    "zero.txt": "5\n0\n",
    "huge.txt": f"5 {2**53 + 1}",
    "float.txt": "5\n7.5\n",
    "nan.txt": "nan\n",
    "word.csv": "length\n5\nmany\n",
    "wide.csv": "length,id\n5,1\n6\n",
    "unknown.csv": "size,name\n5,a\n",
    "broken.jsonl": '{"length": 5}\n{"length": \n',
    "mixed.jsonl": '{"length": 5}\n7\n',
    "lacking.jsonl": '{"length": 5}\n{"size": 5}\n',
    "noid.jsonl": '{"length": 5, "rollout_id": 1}\n{"length": 5, "rollout_id": null}\n',
    "broken.json": "[1, 2",
    "bool.json": "[5, true]",
    "columns.json": '{"total_lengths": [1, 2], "rollout_ids": [1]}',
    "empty.txt": " \n",
    "ok.txt": "5 6 7 8",
    "list.json": "[1]",
    "cost.json": '{"constant": 1}',
    "log.jsonl": '{"lengths": [5], "seconds": 1}\n{"lengths": [0], "seconds": 1}\n',
    "log2.jsonl": '{"lengths": [5], "seconds": "fast"}\n',
    "log3.jsonl": '{"lengths": [], "seconds": 1}\n',
    "log4.jsonl": '{"lengths": [5], "seconds": -1}\n',
    "plan.json": '{"format": "vime-schedule/1"',
}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("plan nothing.csv --micro-batch-size 1", ["nothing.csv:3", "prompt_tokens+response_tokens` is 0 tokens"]),
        ("plan quote.csv --micro-batch-size 1", ["quote.csv:3", "not valid CSV"]),
        ("plan digits.txt --micro-batch-size 1", ["digits.txt:1", "give a whole number of tokens"]),
        ("plan deep.json --micro-batch-size 1", ["deep.json: not valid JSON"]),
        ("simulate plan.json --backward-ratio nan", ["argument --backward-ratio", "'nan' is not a finite number"]),
        ("simulate plan.json --transfer -1", ["argument --transfer"]),
        ("report plan.json --backward-ratio -1", ["argument --backward-ratio"]),
        ("plan missing.txt", ["cannot read missing.txt", "check the path"]),
        ("plan zero.txt --micro-batch-size 1", ["zero.txt:2", "`length` is 0", "at least 1"]),
        ("plan huge.txt --micro-batch-size 1", ["huge.txt:1", str(2**53 + 1), "2**53"]),
        ("plan float.txt --micro-batch-size 1", ["float.txt:2", "'7.5'"]),
        ("plan nan.txt --micro-batch-size 1", ["nan.txt:1", "'nan'"]),
        ("plan word.csv --micro-batch-size 1", ["word.csv:3", "`length` is 'many'"]),
        ("plan wide.csv --micro-batch-size 1", ["wide.csv:3", "1 cells under a header of 2"]),
        ("plan unknown.csv --micro-batch-size 1", ["unknown.csv:2", "size, name", "--length-field"]),
        ("plan broken.jsonl --micro-batch-size 1", ["broken.jsonl:2", "not valid JSON"]),
        ("plan mixed.jsonl --micro-batch-size 1", ["mixed.jsonl:2", "'7' is not an object"]),
        ("plan lacking.jsonl --micro-batch-size 1", ["lacking.jsonl:2", "no field `length`", "it has size"]),
        ("plan noid.jsonl --micro-batch-size 1", ["noid.jsonl:2", "`rollout_id` is None"]),
        ("plan broken.json --micro-batch-size 1", ["broken.json", "not valid JSON"]),
        ("plan bool.json --micro-batch-size 1", ["bool.json, entry 1", "True"]),
        ("plan columns.json --micro-batch-size 1", ["columns.json", "different sizes"]),
        ("plan empty.txt --micro-batch-size 1", ["empty.txt holds no lengths"]),
        ("plan ok.txt", ["neither of --max-tokens-per-gpu and --micro-batch-size", "give exactly one"]),
        ("plan ok.txt --max-tokens-per-gpu 9 --micro-batch-size 1", ["both of"]),
        ("plan ok.txt --max-tokens-per-gpu 0", ["max_tokens_per_gpu", "0"]),
        ("plan ok.txt --dp 0 --micro-batch-size 1", ["`dp` is 0"]),
        ("plan ok.txt --pp 1000000 --micro-batch-size 1", ["pp=1000000 times vpp=1", "lower `pp` or `vpp`"]),
        ("plan ok.txt --dp two --micro-batch-size 1", ["argument --dp", "'two'"]),
        ("plan ok.txt --dp 8 --micro-batch-size 1", ["4 samples", "8"]),
        ("plan ok.txt --micro-batch-size 1 --global-batch-size 0", ["--global-batch-size is '0'"]),
        ("plan ok.txt --micro-batch-size 1 --global-batch-size 1,1", ["2"]),
        ("plan ok.txt --micro-batch-size 1 --cost flops", ["--cost is 'flops'"]),
        ("plan ok.txt --micro-batch-size 1 --cost polynomial:1,2", ["give three numbers"]),
        ("plan ok.txt --micro-batch-size 1 --cost polynomial:-1,2,3", ["`constant` is -1.0"]),
        ("plan ok.txt --micro-batch-size 1 --cost flops:list.json", ["list.json holds a JSON list"]),
        ("plan ok.txt --micro-batch-size 1 --cost flops:cost.json", ["`hidden_size` is missing"]),
        ("plan ok.txt --micro-batch-size 1 --cost measured:cost.json", ["cost.json: `linear` is None"]),
        ("plan ok.txt --micro-batch-size 1 -o no/such/dir.json", ["cannot write no/such/dir.json"]),
        ("plan ok.txt --micro-batch-size 1 --objective fast", ["argument --objective", "balanced"]),
        ("report plan.json", ["plan.json: ", "not JSON"]),
        ("explain list.json", ["list.json: "]),
        ("simulate missing.json", ["cannot read missing.json"]),
        ("what-if ok.txt --dp 1,x --micro-batch-size 1", ["argument --dp", "'1,x'"]),
        ("compare ok.txt --dp 8 --micro-batch-size 1", ["4 samples"]),
        ("calibrate log.jsonl", ["log.jsonl:2", "holds 0"]),
        ("calibrate log2.jsonl", ["log2.jsonl:1", "`seconds` is 'fast'"]),
        ("calibrate log3.jsonl", ["log3.jsonl:1", "`lengths` is []"]),
        ("calibrate log4.jsonl", ["log4.jsonl:1", "`seconds` is -1"]),
        ("calibrate ok.txt", ["ok.txt:1 has no field `lengths`"]),
        ("", ["COMMAND"]),
        ("paint ok.txt", ["'paint'"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: str, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    try:
        code: object = main(arguments.split())
    except SystemExit as leave:  # argparse leaves by itself
        code = leave.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    for part in told:
        assert part in err


@pytest.mark.parametrize("option", ["--step", "--rank"])
@pytest.mark.parametrize("command", ["simulate", "explain"])
def test_a_step_or_rank_that_is_not_there_is_named(run: Run, plan: Schedule, command: str, option: str) -> None:
    done = run(command, "plan.json", option, "9")
    assert done.returncode == 2
    assert f"{option} is 9" in done.stderr


def test_binary_input_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"\xff\xfe\x00")
    done = run("plan", "x.bin", "--micro-batch-size", "1")
    assert done.returncode == 2
    assert "x.bin is not UTF-8 text (byte 0)" in done.stderr


def test_a_calibration_file_reads_back_as_it_was_written(tmp_path: Path) -> None:
    log = [([s, 10], 0.5 + 0.01 * s) for s in (10, 20, 30, 40, 55)]
    fit = calibrate(log)
    path = tmp_path / "cost.json"
    path.write_text(json.dumps(dump_calibration(fit)))
    again = load_calibration(str(path))
    assert isinstance(again, Calibration)
    assert again == fit
