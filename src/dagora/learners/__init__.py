"""From moments to an estimate, without rows."""
