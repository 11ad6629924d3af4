"""The O(n) recursions over the bodies that one process owns. They know no MPI and no model file."""
