"""How Python code meets programs: operands, calls of functions and of programs, NumPy's protocol."""
