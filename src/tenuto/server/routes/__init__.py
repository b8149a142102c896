"""The resources under `/api`, one module for each kind of information."""
