"""What crosses the boundary between sites and coordinator: protocols, messages, the round loop."""
