"""Sites and a server as processes on a network: kits, jobs, faults, and who may ask what."""
