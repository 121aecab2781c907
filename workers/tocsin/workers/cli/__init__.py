"""The command line: `tocsin`."""
