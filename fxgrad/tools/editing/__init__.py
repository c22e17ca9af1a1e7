"""Edit programs: insert, replace and erase single equations, or replace every match of a pattern."""
