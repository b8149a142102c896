"""What the model needs this turn: pure functions from log records to one model request and its manifest.

No I/O. `shape` cuts a record down to its tier, `pair` makes every tool call have its result, `window` chooses
what stays, `fence` writes the block that rides with the question, `assemble` puts them together, `prune` is the
same trade offered as one function on plain messages.
"""
