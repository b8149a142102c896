"""Tenuto: a work platform for agents that keeps a conversation whole.

Six kinds of information live apart, each in its own package: the log (what happened), the context
(what the model needs this turn), the task, instructions, memory, and results with the sandbox.
`App` in `tenuto.app` puts them together. Nothing heavy is imported here.
"""

__version__ = "0.1.0"
