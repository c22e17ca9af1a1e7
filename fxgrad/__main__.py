"""`python -m fxgrad`: the command line."""

from __future__ import annotations

from fxgrad.tools.cli import main

raise SystemExit(main())
