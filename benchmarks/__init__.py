"""What Tocsin costs, beside the bare Redis scripts that would do the least of the same work."""
