"""The frozen data that flows from the test run to the report; standard library only."""
