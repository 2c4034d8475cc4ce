"""The Navier–Stokes benchmark."""
