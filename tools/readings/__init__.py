"""What `tools/reading` compares, and how."""
