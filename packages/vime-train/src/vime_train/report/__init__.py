"""What a run shows: progress while it runs; tables, pictures and pages when it has ended. Imports no torch."""

from vime_train.report._live import LiveProgress, make_progress
from vime_train.report._metrics_log import MetricsLog, reported
from vime_train.report._progress import PlainProgress, Progress, describe
from vime_train.report._records import Record, read_records, series
from vime_train.report._samples import write_last_iteration
from vime_train.report._sinks import open_sinks
from vime_train.report._summary import Summary, summarise
from vime_train.report._table import print_table, table_rows
from vime_train.report._write import RunReport, write_plan_page, write_report

__all__ = [
    "LiveProgress",
    "MetricsLog",
    "PlainProgress",
    "Progress",
    "Record",
    "RunReport",
    "Summary",
    "describe",
    "make_progress",
    "open_sinks",
    "print_table",
    "read_records",
    "reported",
    "series",
    "summarise",
    "table_rows",
    "write_last_iteration",
    "write_plan_page",
    "write_report",
]
