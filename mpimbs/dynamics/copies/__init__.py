"""Many systems that differ in numbers: which they are, and how they are evaluated side by side."""
