"""The Pipe benchmark."""
