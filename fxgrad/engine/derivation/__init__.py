"""Programs derived from programs: simplified ones, transformed ones, and the guards of user code that ran for them."""
