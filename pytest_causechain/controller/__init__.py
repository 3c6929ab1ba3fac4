"""Leads each failing test from its report to its printed section."""
