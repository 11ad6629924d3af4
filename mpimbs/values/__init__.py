"""The linear relation of accelerations and loads at the boundary of a part, in its layouts, and its eliminations."""
