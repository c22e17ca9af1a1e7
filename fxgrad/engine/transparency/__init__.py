"""Recordings that need not run: functions shown to record the same program whenever cheap tests succeed."""
