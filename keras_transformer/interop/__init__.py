"""Models of other systems: read into this package, and written for them."""
