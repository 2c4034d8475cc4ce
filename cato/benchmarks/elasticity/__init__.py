"""The Elasticity benchmark."""
