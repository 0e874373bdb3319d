"""Where a model comes from: a file, a module, an installed package's collection, a configuration; and what it takes."""
