"""Number types of the kernels, a double or lanes of them, their tables, how they are compiled, linked and kept."""
