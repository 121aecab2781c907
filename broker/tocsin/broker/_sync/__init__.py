# Generated from _async/__init__.py by `make generate`; edit that file.

"""The sync client. The sync one is generated from it."""
