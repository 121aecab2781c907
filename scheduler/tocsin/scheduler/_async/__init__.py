"""The async scheduler. The sync one is generated from it."""
