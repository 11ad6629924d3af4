"""Communication plans: built once, with their buffers; the hot path of each is one call. No physics."""
