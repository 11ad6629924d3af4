"""Numbers and algebra: the number types of the kernels, 3- and 6-vectors, inertias, the handle equations. No model,
no MPI."""
