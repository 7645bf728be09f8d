"""One file per model family; the registry finds the one for a config."""
