"""Two models side by side: how their modules match, and at which layer their numbers part."""
