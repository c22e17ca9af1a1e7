"""Programs made of programs: simplified ones, derived ones, and the guards of user code that ran for them."""
