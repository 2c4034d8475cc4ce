"""The Airfoil benchmark."""
