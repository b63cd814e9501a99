"""The verbs of the command line, one function each: on devices, on results, and predictions."""
