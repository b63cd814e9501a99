"""NVIDIA GPUs: which there are, what they are, in which state they are, and how they are driven."""
