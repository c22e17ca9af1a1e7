"""Recording: tracers and their tapes, the table of earlier recordings, and the application of programs to values."""
