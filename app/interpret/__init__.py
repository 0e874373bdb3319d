"""Interpret a trained net: attention maps, attributions to its input, and ablation or patching of its parts."""
