"""Who takes part: keys, the terms that all agreed on, and each member's own folder."""
