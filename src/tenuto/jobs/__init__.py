"""Keyed background work."""
