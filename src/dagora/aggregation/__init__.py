"""How sites' summands become a total."""
