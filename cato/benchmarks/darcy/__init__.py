"""The Darcy flow benchmark."""
