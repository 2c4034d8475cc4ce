"""The Plasticity benchmark."""
