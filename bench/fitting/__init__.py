"""From samples to ceilings, curves and fitted roofs with their intervals."""
