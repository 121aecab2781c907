"""The long-running faces of Tocsin, one folder each."""
