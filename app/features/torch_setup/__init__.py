"""What to do where PyTorch is missing: install it from the window, or use a Python elsewhere."""
