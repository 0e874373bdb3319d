"""A network taken away: its code, weights and training script, PT2 and ONNX, and a certificate that they agree.

Two dialogs, the drawing as a picture, and `tapedeck export`. What writes and certifies is `app.export`.
"""
