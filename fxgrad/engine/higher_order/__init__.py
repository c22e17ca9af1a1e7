"""Operations with nested programs: named and compiled calls, checkpoints, functions with custom derivatives.

Only here do operations and interpreters meet.
"""
