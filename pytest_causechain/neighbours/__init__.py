"""The nearest passing test for a failing one."""
