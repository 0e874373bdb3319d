"""The page "Code": the class that is the model, in which numbers and names can be typed over."""
