"""Asks the failing run itself: single interventions after which its test passes, and the twin they make."""
