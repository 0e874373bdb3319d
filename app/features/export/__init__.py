"""A network taken away: its code, weights and training script, PT2 and ONNX, and a certificate that they agree.

Two dialogs, the drawing as a picture, and `tapedeck export`. `app.export` writes what a run leaves behind too; the
other formats and the certificate are made here, in processes that know the exported files alone.
"""
