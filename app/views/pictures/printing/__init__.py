"""Pictures for paper: a `Drawing` becomes a `Plate` of plain marks, which SVG, PDF, PNG and TikZ are written from."""
