"""Precision: which operations compute in half precision (`autocast`), and what rounding does to a result (`report`)."""
