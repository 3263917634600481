"""Optimisation without statistics: proximal steps and the server's W-step."""
