"""`vime-schedule calibrate`: a log of measured micro-batches to a cost model in seconds."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from vime_schedule._cli._arguments import add_json_argument
from vime_schedule._cli._console import print_lines, terminal_width
from vime_schedule._cli._costs import dump_calibration
from vime_schedule._cli._files import read_text, source_name, write_text
from vime_schedule._cli._numbers import whole_number
from vime_schedule._cli._prose import paragraph
from vime_schedule._cli._records import Record, parse_records
from vime_schedule._costs import calibrate
from vime_schedule._errors import ScheduleError
from vime_schedule._render._text import Line

NAME = "calibrate"
SUMMARY = "fit a cost model to measured micro-batches"
DESCRIPTION = """\
Fit seconds = overhead + sum over samples (constant + linear * length +
quadratic * length**2) to a log, by least squares without negative
coefficients. The log is JSONL with `lengths` (a list) and `seconds` per
micro-batch, or CSV with these columns and lengths separated by spaces."""
EXAMPLES = """\
examples:
  vime-schedule calibrate timings.jsonl
  vime-schedule calibrate timings.csv -o cost.json
  vime-schedule plan lengths.csv --dp 8 --max-tokens-per-gpu 16384 \\
      --cost measured:cost.json
"""
WEAK_FIT = 0.9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("log", metavar="LOG", help="JSONL or CSV with lengths and seconds; - is stdin")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the model for --cost measured:FILE")
    add_json_argument(parser)


def run(arguments: argparse.Namespace) -> None:
    """Read, fit, print, write."""
    fields = dump_calibration(calibrate(_observations(arguments.log)))
    if arguments.output:
        write_text(arguments.output, json.dumps(fields) + "\n")
    if arguments.json:
        print(json.dumps(fields))
        return
    print_lines(_lines(fields, terminal_width()))


def _observations(path: str) -> Iterator[tuple[list[int], float]]:
    """Yield the measured micro-batches of a log."""
    for record in parse_records(read_text(path), source_name(path)):
        lengths, seconds = record.get("lengths"), record.get("seconds")
        words = lengths.replace(";", " ").split() if isinstance(lengths, str) else lengths
        if not isinstance(words, list) or not words:
            raise ScheduleError(f"{record.where}: `lengths` is {lengths!r}: give the sample lengths of a micro-batch.")
        yield [_length(record, word) for word in words], _seconds(record, seconds)


def _length(record: Record, word: Any) -> int:
    value = whole_number(word) if isinstance(word, str) else word
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ScheduleError(f"{record.where}: `lengths` holds {word!r}: give whole numbers of tokens, at least 1.")
    return value


def _seconds(record: Record, word: Any) -> float:
    try:
        value = float(word)
    except (TypeError, ValueError) as error:
        raise ScheduleError(f"{record.where}: `seconds` is {word!r}: give a number above 0.") from error
    if not 0 < value < float("inf"):
        raise ScheduleError(f"{record.where}: `seconds` is {word!r}: give a finite number above 0.")
    return value


def _lines(fields: dict[str, Any], width: int) -> list[Line]:
    """Return the coefficients with their units, the fit and its range."""
    units = {
        "overhead": "seconds per micro-batch",
        "constant": "seconds per sample",
        "linear": "seconds per token",
        "quadratic": "seconds per token squared",
    }
    lines: list[Line] = [[(f"{name:<10}{fields[name]:>12.5g}  {unit}"[:width], "")] for name, unit in units.items()]
    lines += paragraph(
        f"R^2 {fields['r_squared']:.4f} over {fields['num_observations']} micro-batches with samples of "
        f"{fields['shortest']} to {fields['longest']} tokens; other lengths are refused.",
        width,
    )
    if fields["r_squared"] < WEAK_FIT:
        lines += paragraph("The lengths explain little of the time: look for other load on the machine.", width)
    return lines
