"""What is known of files before they are written: where they may go, who writes there, what they lie on. No HDF5."""
