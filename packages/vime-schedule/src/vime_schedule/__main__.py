"""`python -m vime_schedule` is the command line."""

from vime_schedule._cli import main

raise SystemExit(main())
