"""One command for a GPU machine that is bare and offline: checks that only a GPU can answer, in stages."""
