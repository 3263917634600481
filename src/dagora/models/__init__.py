"""What a site fits: the local loss and its proximal step."""
