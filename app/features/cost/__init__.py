"""Parameters, work and bytes of each node of the network: the page "Cost", and the overlay on the canvas."""
