"""The measured record and the roofline model: pure, standard library only, relative imports only."""
