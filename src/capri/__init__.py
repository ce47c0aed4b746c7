"""capri."""
