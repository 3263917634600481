"""Graphs in the files and objects of other tools: one file a format, and registry.py to find them."""
