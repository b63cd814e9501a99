"""Times of work that was not measured, from a measured profile: products, workloads, any FLOP and bytes."""
