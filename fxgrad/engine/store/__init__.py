"""The store on disk: what identifies a jitted function by its content, and executables in files."""
