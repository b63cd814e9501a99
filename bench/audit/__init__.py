"""The audit: what every CUDA function compiles to, on every architecture, without a driver or a GPU."""
