"""Forces that users write: functions found, called and checked, what they give put on bodies and joints. No steps.

Begin with `external.py`.
"""
