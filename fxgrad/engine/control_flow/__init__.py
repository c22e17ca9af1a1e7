"""Python's own control flow, compiled: `if`, `while` and `for` on traced values, converted from source."""
