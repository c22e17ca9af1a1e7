"""Look inside a function: the values that its code has names for, read, replaced, differentiated and watched."""
