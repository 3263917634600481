"""Federated algorithms, one file each, as a site part and a server part."""
