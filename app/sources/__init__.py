"""Sources of models: a file, a module, an installed package, a configuration; and their example inputs."""
