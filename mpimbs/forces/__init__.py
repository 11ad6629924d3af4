"""Forces that users write: their functions found, called and checked, and what they give put on bodies and joints."""
