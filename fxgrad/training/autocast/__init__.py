"""Precision: operations that compute in half precision (`autocast`), and the effect of rounding (`report`)."""
