"""`tapedeck attention`, `attribute` and `patch`: interpret a net on some samples."""
