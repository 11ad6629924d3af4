"""Which rank owns which body. No MPI."""
