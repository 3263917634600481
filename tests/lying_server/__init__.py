"""A server that lies: generated conversations and named attacks."""
