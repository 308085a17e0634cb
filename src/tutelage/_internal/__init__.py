"""Types, checks, files, random streams and progress bars, for the package alone."""
