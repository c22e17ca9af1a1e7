"""Programs as C files."""
