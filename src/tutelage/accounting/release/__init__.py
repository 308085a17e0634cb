"""From a private cost to an ε that may be published."""
