"""Recording: tracers and their tapes, the table of what was recorded before, and how a program is applied to values."""
