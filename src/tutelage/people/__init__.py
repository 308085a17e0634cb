"""People with private rows, behind one interface, wherever the rows are."""
