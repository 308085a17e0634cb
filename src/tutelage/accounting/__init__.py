"""Events, and votes where a theorem reads them, to privacy cost."""
