"""Where compiling breaks: graph breaks and recompiles of a model with line and cure, and what it gains."""
