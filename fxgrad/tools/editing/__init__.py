"""Changing programs: equations inserted, replaced and erased one by one, or wherever they are as a pattern says."""
