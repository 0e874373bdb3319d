"""`tapedeck diff`: where two models part."""
