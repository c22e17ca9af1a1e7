"""From Python code to programs: operands, calls of functions and of programs, NumPy's protocol."""
