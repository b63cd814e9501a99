"""What is measured: the points of every family, their sizes, and how they fit into the time box."""
