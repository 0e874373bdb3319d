"""The autograd graph of one batch: captured, folded, drawn. Knows no Qt and keeps no tensor."""
