"""What a simulated device is made of: its truth, what a point costs on it, its defects."""
