"""Sites' rows: reading, checking, moments, simulation and splitting."""
