"""Tests of Tocsin. Read `tour/` first."""
