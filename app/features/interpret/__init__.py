"""What a net looks at: attention maps of every head, attributions by captum, and parts muted or patched.

The page Attention, and `tapedeck attention`, `attribute` and `patch`. Each attention of a forward pass is found as it
is computed; its weights are computed again, and checked against the output of the same call.
"""
