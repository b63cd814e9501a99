"""The empirical roofline suite: measure, fit, place, compare, feed."""
