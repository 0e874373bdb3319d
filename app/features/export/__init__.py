"""A network taken away: its code, weights and training script, PT2 and ONNX, and a certificate that they agree.

Two dialogs, the drawing as a picture, and `tapedeck export`. What a run leaves behind too is written by `app.export`; the
other formats and the certificate are made here, in processes that know the exported files alone.
"""
